"""What a problem is: `Network`, `Flows`, `Routes`, `Placement`; `place()` leads to the device."""

from fabric.network._blueprint import Blueprint as Blueprint, names_of as names_of
from fabric.network._checks import (
    cost_array as cost_array,
    frozen as frozen,
    index_array as index_array,
    is_whole as is_whole,
    whole as whole,
    whole_array as whole_array,
    whole_or_fault as whole_or_fault,
    wholes as wholes,
)
from fabric.network._flows import Flows as Flows
from fabric.network._join import join as join
from fabric.network._labels import (
    ENDPOINT_KINDS as ENDPOINT_KINDS,
    SERVICE_KINDS as SERVICE_KINDS,
    Labels as Labels,
    Names as Names,
)
from fabric.network._network import Network as Network
from fabric.network._place import (
    canonical as canonical,
    check_link_counts as check_link_counts,
    is_traced as is_traced,
    place as place,
)
from fabric.network._placement import Placement as Placement
from fabric.network._routes import Routes as Routes
