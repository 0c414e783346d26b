"""The ground of images made of Debian packages: the essential ones of this machine's own release.

A tree cannot configure itself before it has a shell and libraries. So the packages are first only taken apart, in a
sandbox with this machine's own tools, and then installed properly in a sandbox that starts on that tree.
"""

from __future__ import annotations

from forkgym.sandboxes.images.steps import DELIVERY, INSTALL

TREE = "tree"  # where `UNPACK` puts the tree
UNPACK = f"""set -e
umask 022
mkdir -p /{TREE}/usr/bin /{TREE}/var/lib/dpkg
cd /{TREE}
for name in bin sbin lib lib64; do
  mkdir -p usr/$name
  ln -s usr/$name $name
done
touch var/lib/dpkg/status
for package in {DELIVERY}/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar --extract --numeric-owner --keep-directory-symlink --no-overwrite-dir
done
find usr/share/man usr/share/locale usr/share/info -mindepth 1 -delete 2>/dev/null || true
find usr/share/doc -type f ! -name copyright -delete 2>/dev/null || true
"""
CONFIGURE = f"""set -e
umask 022
{INSTALL}mkdir -p /etc/dpkg/dpkg.cfg.d /usr/sbin
cat >/etc/dpkg/dpkg.cfg.d/forkgym <<'end'
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
end
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
install --force-depends
mkdir -p /home/agent
echo 'agent:*:1000:1000:agent:/home/agent:/bin/bash' >>/etc/passwd
echo 'agent:x:1000:' >>/etc/group
chown 1000:1000 /home/agent
printf '127.0.0.1 localhost\\n::1 localhost\\n127.0.1.1 sandbox\\n' >/etc/hosts
echo sandbox >/etc/hostname
: >/etc/resolv.conf
: >/etc/machine-id
rm -f /var/log/*.log /var/cache/debconf/*-old /var/lib/dpkg/*-old
"""
