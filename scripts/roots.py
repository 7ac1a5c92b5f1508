# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Roots of systems as they are when they are new, for what is tried there: folders that
debootstrap makes. Needs root and Debian's package debootstrap."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

DEBIAN = "http://deb.debian.org/debian"
UBUNTU = "http://archive.ubuntu.com/ubuntu"
MIRRORS = {"bookworm": DEBIAN, "trixie": DEBIAN, "jammy": UBUNTU, "noble": UBUNTU}
SECURITY = "deb http://deb.debian.org/debian-security {suite}-security main\n"


def fail(message):
    sys.exit(f"error: {message}")


def require_debootstrap():
    if os.geteuid():
        fail("expected root, for roots of their own, but got another user")
    if not shutil.which("debootstrap"):
        fail("expected debootstrap, but got none: install Debian's package debootstrap")


def make(folder, suite, packages=()):
    """Returns a new system of a release with packages more; it is made once."""
    root = folder / "-".join([suite, *packages])
    if (root / "made").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    mirror = MIRRORS[suite]
    options = ["--variant=minbase"]
    if packages:
        options.append(f"--include={','.join(packages)}")
    if mirror == UBUNTU:
        options.append("--components=main,universe")
        if not Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg").exists():
            options.append("--no-check-gpg") # a throwaway system
    script = Path("/usr/share/debootstrap/scripts") / suite
    # One script makes all of a distribution: those that are newer than it lack its name alone.
    more = [] if script.exists() else [str(script.with_name("jammy" if mirror == UBUNTU else "bookworm"))]
    done = subprocess.run(["debootstrap", *options, suite, root, mirror, *more], capture_output=True, text=True)
    if done.returncode:
        fail(f"expected debootstrap to make a root of {suite}, but got '{(done.stdout + done.stderr).strip().splitlines()[-1]}'")
    if mirror == DEBIAN:
        (root / "etc/apt/sources.list").write_text(
            f"deb {mirror} {suite} main\ndeb {mirror} {suite}-updates main\n" + SECURITY.format(suite=suite))
    (root / "made").touch()
    return root


def copy(root, target):
    """Returns `target`, a fresh copy of a root."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "--archive", "--reflink=auto", root, target], check=True)
    return target


def run(root, command, workdir="/", lent=(), environment=()):
    """Runs a shell's command in a root; `lent` are folders of this system and where
    they are there. Returns whether it succeeded."""
    mounts = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev",
              f"cp /etc/resolv.conf {root}/etc/resolv.conf"]
    for source, target in lent:
        mounts += [f"mkdir -p {root}{target}", f"mount --bind {shlex.quote(str(source))} {root}{target}"]
    variables = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", *environment]
    inner = shlex.join(["exec", "env", "-i", *variables, "chroot", str(root), "sh", "-c",
                        f"cd {shlex.quote(workdir)} && {command}"])
    return not subprocess.run(["unshare", "--mount", "sh", "-c", " && ".join([*mounts, inner])]).returncode
