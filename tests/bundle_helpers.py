"""What several tests do to model folders."""

import hashlib
import json

from mt.storage.run_dir import ModelDir


def reseal(folder: ModelDir) -> None:
    """Makes a manifest that agrees with whatever is in a folder now."""
    if folder.manifest.is_symlink() or folder.manifest.is_dir():
        return  # never write through a link that leads out
    files = {}
    for path in folder.root.rglob("*"):
        if path.is_file() and path != folder.manifest:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files[path.relative_to(folder.root).as_posix()] = {"bytes": len(content), "sha256": digest}
    folder.manifest.write_text(json.dumps({"files": files}))
