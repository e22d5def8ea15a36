"""Who sends how much to whom: patterns by rule or chance, demand matrices, flow tables."""

from fabric.traffic._flow_table import read_flows as read_flows
from fabric.traffic._matrix import matrix as matrix, read_matrix as read_matrix
from fabric.traffic._patterns import (
    PATTERNS as PATTERNS,
    all_to_all as all_to_all,
    incast as incast,
    permutation as permutation,
    ring as ring,
    uniform_random as uniform_random,
)
