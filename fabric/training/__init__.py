"""Model shape, layout, memory and step time of a training job."""

from fabric.training._layout import Layout as Layout
from fabric.training._memory import (
    Memory as Memory,
    memory as memory,
    states as states,
)
from fabric.training._model import Model as Model, model_names as model_names
from fabric.training._report import (
    Assumption as Assumption,
    Bottleneck as Bottleneck,
    StepReport as StepReport,
)
from fabric.training._smallest_change import smallest_change as smallest_change
from fabric.training._stages import (
    layers_of_stage as layers_of_stage,
    parameters_of_stage as parameters_of_stage,
)
from fabric.training._step import PLACEMENTS as PLACEMENTS, step as step
