"""JupyterLab serving one folder to a browser, with everything of its own in another."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import plotly

#: No news from the network, and all cells in the page at once, so that figures can be counted.
_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
_OPTIONS = (
    "--no-browser",
    "--allow-root",
    "--IdentityProvider.token=",
    "--ServerApp.port_retries=0",
    "--LabApp.expose_app_in_browser=True",
    "--LabApp.extension_manager=readonly",
)
#: Seconds to start in, on a machine that is busy.
_START_S = 120


class Lab:
    """A running server. Use as a context manager.

    Attributes:
        address: Of the server, without a slash at its end.
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        settings = scratch / "settings"
        settings.mkdir(parents=True)
        (settings / "overrides.json").write_text(json.dumps(_SETTINGS), encoding="utf-8")
        places = {
            name: str(scratch / name.lower())
            for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "HOME")
        }
        # What draws in the page lies beside plotly, which may not be in this environment itself.
        places["JUPYTER_PATH"] = str(Path(plotly.__file__).parents[4] / "share" / "jupyter")
        command = [sys.executable, "-m", "jupyterlab", f"--port={port}", *_OPTIONS]
        command += [f"--ServerApp.root_dir={folder}", f"--LabApp.app_settings_dir={settings}"]
        self._log = (scratch / "lab.log").open("wb")
        environment = {**os.environ, **places, "IPYTHONDIR": str(scratch / "ipython")}
        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=subprocess.STDOUT, env=environment, cwd=scratch
        )
        self._scratch = scratch
        self._port = port

    def __enter__(self) -> Lab:
        end_s = time.monotonic() + _START_S
        while time.monotonic() < end_s and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return self
        self.__exit__()
        log = (self._scratch / "lab.log").read_text("utf-8", "replace")
        raise RuntimeError(f"JupyterLab did not start: {log[-2000:]}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
