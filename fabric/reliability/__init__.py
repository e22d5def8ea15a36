"""What fails, what that costs, and whom it reaches."""

from fabric.reliability._blast_radius import (
    Blast as Blast,
    BlastRadius as BlastRadius,
    blast_radius as blast_radius,
)
from fabric.reliability._contingency import contingency as contingency
from fabric.reliability._failures import Components as Components, components as components
from fabric.reliability._report import Contingency as Contingency, Failure as Failure
