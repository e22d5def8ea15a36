"""Long work: how far it has come, checkpoints that survive a kill, and how it converged."""

from fabric.runs._checkpoint import (
    Checkpoint as Checkpoint,
    packed as packed,
    unpacked as unpacked,
)
from fabric.runs._fingerprint import fingerprint as fingerprint
from fabric.runs._history import (
    History as History,
    check_picture as check_picture,
    finite as finite,
)
from fabric.runs._progress import Progress as Progress, gap as gap
