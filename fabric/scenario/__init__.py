"""Scenario files: a model on a fabric, its layout and how it runs -> objects and step times."""

from fabric.scenario._build import Built as Built
from fabric.scenario._cases import Answer as Answer, Case as Case, Crowd as Crowd
from fabric.scenario._find import scenario_names as scenario_names
from fabric.scenario._scenario import Scenario as Scenario, json_schema as json_schema
