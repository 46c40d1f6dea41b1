#!/bin/bash
# Runs a program as a launcher pod does: own namespaces, uid 107, no capabilities, in
# the root file system ROOTFS, with the folders of POD as its emptyDirs and a tap.
# usage: unshare -m -p -n -i --fork bash pod.sh ROOTFS POD PROGRAM ARGS...
set -e
R=$1 POD=$2
shift 2
if [ -n "$POD_CGROUP" ]; then # a folder of the kernel's, of which all that follows is
  echo 0 >"$POD_CGROUP/cgroup.procs"
fi
mount --make-rprivate /
mount -t proc proc "$R/proc"
mount -t sysfs -o ro sysfs "$R/sys"
mount -t tmpfs tmpfs "$R/dev"
for d in null zero random urandom full tty; do
  touch "$R/dev/$d"
  mount --bind "/dev/$d" "$R/dev/$d"
done
# The handler gives these to uid 107.
mkdir "$R/dev/net" "$R/dev/shm"
mknod -m 0600 "$R/dev/net/tun" c 10 200
chown 107 "$R/dev/net/tun"
if [ -n "$POD_KVM" ]; then
  mknod -m 0600 "$R/dev/kvm" c 10 232
  chown 107 "$R/dev/kvm"
fi
if [ -n "$POD_BLOCK" ]; then # of a claim named data: its device's numbers
  mknod -m 0600 "$R/dev/data" b $POD_BLOCK
  chown 107 "$R/dev/data"
fi
install -d -m 0700 -o 107 -g 107 "$R/dev/fdset"
mount -t tmpfs -o mode=1777 tmpfs "$R/dev/shm"
if [ -n "$POD_HUGEPAGES" ]; then # with the pod's group, as the kubelet gives it
  mkdir "$R/dev/hugepages"
  mount -t hugetlbfs -o pagesize=2M,gid=107,mode=2775 hugetlbfs "$R/dev/hugepages"
fi
if [ -n "$POD_LIBVIRTD_DIES" ]; then # before it can be used, the first time
  touch "$R/dev/libvirtd"
  mount --bind "$R/usr/sbin/libvirtd" "$R/dev/libvirtd"
  cat >"$R/dev/dies" <<'SCRIPT'
#!/bin/sh
mkdir /run/libvirt/died 2>/dev/null && kill -KILL $$
exec /dev/libvirtd "$@"
SCRIPT
  chmod 0755 "$R/dev/dies"
  mount --bind "$R/dev/dies" "$R/usr/sbin/libvirtd"
fi
ln -s /proc/self/fd "$R/dev/fd"
touch "$R/dev/termination-log"
mount --bind "$POD/termination-log" "$R/dev/termination-log"
mount -t tmpfs tmpfs "$R/run"
for d in libvirt:libvirt private:kubevirt-private sockets:kubevirt/sockets; do
  mkdir -p "$R/run/${d#*:}"
  mount --bind "$POD/${d%%:*}" "$R/run/${d#*:}"
done
ip link set lo up
ip tuntap add tap0 mode tap user 107
ip addr add 10.0.2.1/24 dev tap0
ip tuntap add tap1 mode tap user 107 multi_queue
ip link set tap1 up
ip link set tap0 up
sysctl -qw net.ipv4.ip_unprivileged_port_start=0
if [ -n "$POD_CPUS" ]; then # the processors of the container's cgroup
  taskset -cp "$POD_CPUS" $$ >/dev/null
fi
if [ -n "$POD_REALTIME" ]; then # what the handler allows
  prlimit --pid $$ --rtprio=1:1
fi
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid \
  chroot --userspec=107:107 --groups=107 "$R" "$@"
