"""What is refused before anything is started: nothing is deleted, and the message says what to do."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from baker.engines.oci import Oci
from baker.pack import oci
from baker.pack.layout import Layout
from tests.pipeline.bakes import LOADS, run, until
from tests.pipeline.conftest import Sites
