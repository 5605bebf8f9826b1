"""A model hub on loopback that answers as the real one does (https://huggingface.co/docs/hub/api), with scripted refusals and faults."""

from tests.sim_hub.server import Fault, Repo, SimHub, running

__all__ = ["Fault", "Repo", "SimHub", "running"]
