"""Real files -> networks, and back; each reader says what it ignored and what is contradicted."""

from fabric.readers._hf_config import hf_config as hf_config
from fabric.readers._ib_write import write_ibnetdiscover as write_ibnetdiscover
from fabric.readers._ibnetdiscover import ibnetdiscover as ibnetdiscover
from fabric.readers._lfts import TablesReading as TablesReading, lfts as lfts
from fabric.readers._node_link import node_link as node_link
from fabric.readers._node_link_write import write_node_link as write_node_link
from fabric.readers._reading import Reading as Reading
from fabric.readers._registry import FORMATS as FORMATS, WRITERS as WRITERS, read as read
from fabric.readers._survey import (
    hosts_survey as hosts_survey,
    summary as summary,
    swapped_rails as swapped_rails,
)
