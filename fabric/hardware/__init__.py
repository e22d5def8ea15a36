"""GPUs, servers, NICs and switches as data with evidence, and what software makes of them."""

from fabric.hardware._catalogue import (
    default_profile as default_profile,
    gpu as gpu,
    nic as nic,
    profile as profile,
    server as server,
    switch as switch,
)
from fabric.hardware._files import names as names
from fabric.hardware._flops import parse_flops as parse_flops
from fabric.hardware._home import home as home
from fabric.hardware._profile import (
    CHOICES as CHOICES,
    Collectives as Collectives,
    Efficiency as Efficiency,
    Latency as Latency,
    Profile as Profile,
    Stack as Stack,
)
from fabric.hardware._records import (
    Gpu as Gpu,
    Nic as Nic,
    Server as Server,
    Switch as Switch,
    evidence as evidence,
)
from fabric.hardware._watts import parse_power as parse_power
