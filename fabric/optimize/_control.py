"""What as many evaluations reach without gradients: random splits, then random shifts."""

import numpy as np

from fabric.optimize._aim import Aim
from fabric.optimize._certificate import Limit


def random_moves(
    aim: Aim, now: np.ndarray, limit: Limit | None, evaluations: int, seed: int
) -> float:
    """Return the best objective, inside, of random splits and of shifts from the best of them.

    A tenth of the evaluations goes to splits drawn evenly; the rest shifts some of the traffic of a
    pair, drawn by demand, from one of its paths to another, and keeps what is better.

    Args:
        aim: The objective.
        now: (pairs, width), today's splits.
        limit: On what may be moved, if there is one.
        evaluations: How many.
        seed: Of what is drawn.
    """
    rng = np.random.default_rng(seed)
    best, score = now, aim.score(now)
    valid, demand = aim.paths.valid, aim.traffic.sum(axis=1)
    several = np.flatnonzero((valid.sum(axis=1) > 1) & (demand > 0))
    if not len(several):
        return score
    chance = demand[several] / demand[several].sum()
    for i in range(evaluations):
        if i < evaluations // 10 and limit is None:
            drawn = rng.exponential(size=valid.shape) * valid
            tried = drawn / drawn.sum(axis=1, keepdims=True)
        else:
            tried = best.copy()
            pair = rng.choice(several, p=chance)
            used = np.flatnonzero(tried[pair] > 0)
            source, to = rng.choice(used), rng.choice(np.flatnonzero(valid[pair]))
            moved = tried[pair, source] * rng.random()
            tried[pair, source] -= moved
            tried[pair, to] += moved
        if limit is not None:
            away = 0.5 * (limit.mass[:, None] * np.abs(tried - limit.today)).sum()
            if away > limit.most:
                continue
        found = aim.score(tried)
        if found < score:
            best, score = tried, found
    return score
