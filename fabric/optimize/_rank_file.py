"""Files that say which GPU every rank runs on, as launchers read them."""

from collections.abc import Sequence

from fabric.network import whole


def rank_file(servers: Sequence[str], gpus: Sequence[int], cores: int) -> str:
    """Return a rank file of Open MPI: the server of every rank, and the cores it is bound to.

    Args:
        servers: (ranks,), their names.
        gpus: (ranks,), the number of each GPU in its server.
        cores: Of a server for each of its GPUs: GPU g gets the g-th group of so many.

    Raises:
        ModelError: If `cores` is no whole number from 1.

    Examples:
        >>> print(rank_file(["a", "b"], [0, 3], cores=2), end="")
        rank 0=a slot=0-1
        rank 1=b slot=6-7

    References:
        Open MPI, mpirun(1), section Rankfiles.
    """
    cores = whole("cores", cores)
    last = "" if cores == 1 else "-{}"
    return "".join(
        f"rank {i}={name} slot={gpu * cores}{last.format((gpu + 1) * cores - 1)}\n"
        for i, (name, gpu) in enumerate(zip(servers, gpus, strict=True))
    )


def hostfile(servers: Sequence[str]) -> str:
    """Return the file that SLURM_HOSTFILE names: the server of every rank.

    References:
        Slurm, srun(1), `--distribution=arbitrary`.
    """
    return "".join(f"{name}\n" for name in servers)


def gpu_file(gpus: Sequence[int]) -> str:
    """Return the number of the GPU of every rank in its server, one a line."""
    return "".join(f"{gpu}\n" for gpu in gpus)
