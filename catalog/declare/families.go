package declare

import "slices"

// families lists all preferences, by the names of the families.
func families() []family {
	return []family{
		{"alpine", []guest{{"alpine", "Alpine", "alpine", "alpine", all(paravirtual, needs(1, "512Mi"))}}},
		{"centos", centOS()},
		{"cirros", []guest{{"cirros", "Cirros", "cirros", "cirros", all(paravirtual, needs(1, "256Mi"))}}},
		{"debian", []guest{{"debian", "Debian", "debian", "debian", all(paravirtual, uefi, needs(1, "512Mi"))}}},
		{"fedora", fedora()},
		{"legacy", []guest{{"legacy", "Legacy Guest", "other", "legacy", old}}},
		{"linux", []guest{
			{"linux", "Linux Guest", "linux", "linux", paravirtual},
			{"linux.efi", "Linux EFI Guest", "linux", "linux-efi", all(paravirtual, uefi)},
			{"linux.virtiotransitional", "Linux Virtio Transitional Guest", "linux", "linux-virtio-transitional", all(paravirtual, transitional)},
		}},
		{"opensuse", []guest{
			{"opensuse.leap", "OpenSUSE Leap", "opensuse-leap", "opensuse.leap", all(paravirtual, needs(1, "2Gi"))},
			{"opensuse.tumbleweed", "OpenSUSE Tumbleweed", "opensuse-tumbleweed", "opensuse.tumbleweed", all(paravirtual, needs(1, "2Gi"))},
		}},
		{"oraclelinux", []guest{{"oraclelinux", "Oracle Linux", "oracle", "oraclelinux", all(paravirtual, uefi, needs(2, "4Gi"))}}},
		{"rhel", rhel()},
		{"sles", []guest{{"sles", "SUSE Linux Enterprise Server", "sles", "sles", all(paravirtual, needs(1, "2Gi"))}}},
		{"ubuntu", []guest{{"ubuntu", "Ubuntu", "ubuntu", "ubuntu", all(paravirtual, needs(1, "2Gi"))}}},
		{"windows", windowses()},
	}
}

func centOS() []guest {
	const icon, tags = "centos", "linux,centos-stream"
	stream := all(paravirtual, diskThread, needs(1, "1.5Gi"))
	return []guest{
		{"centos.stream9", "CentOS Stream 9", icon, tags, stream},
		{"centos.stream9.desktop", "CentOS Stream 9", icon, tags, all(stream, desktop)},
		{"centos.stream9.dpdk", "CentOS Stream 9", icon, tags, all(stream, dpdk, needs(8, "1.5Gi"))},
		{"centos.stream10", "CentOS Stream 10", icon, tags, stream},
		{"centos.stream10.desktop", "CentOS Stream 10", icon, tags, all(stream, desktop)},
	}
}

func fedora() []guest {
	const icon, tags = "fedora", "fedora"
	each := all(paravirtual, needs(1, "2Gi"))
	return []guest{
		{"fedora", "Fedora (amd64)", icon, tags, all(each, on("amd64"), secureBoot)},
		{"fedora.arm64", "Fedora (arm64)", icon, tags, all(each, on("arm64"))},
		{"fedora.s390x", "Fedora (s390x)", icon, tags, all(each, on("s390x"))},
	}
}

func rhel() []guest {
	const icon, tags = "rhel", "linux,rhel"
	seven := all(paravirtual, needs(1, "1Gi"))
	eight := all(paravirtual, needs(1, "1.5Gi"))
	later := all(eight, diskThread)
	onPC := all(later, on("amd64"), secureBoot)
	return []guest{
		{"rhel.7", "Red Hat Enterprise Linux 7", icon, tags, seven},
		{"rhel.7.desktop", "Red Hat Enterprise Linux 7", icon, tags, all(seven, desktop)},
		{"rhel.8", "Red Hat Enterprise Linux 8", icon, tags, eight},
		{"rhel.8.desktop", "Red Hat Enterprise Linux 8", icon, tags, all(eight, desktop)},
		{"rhel.8.dpdk", "Red Hat Enterprise Linux 8", icon, tags, all(eight, dpdk, needs(8, "1.5Gi"))},
		{"rhel.9", "Red Hat Enterprise Linux 9 (amd64)", icon, tags, onPC},
		{"rhel.9.arm64", "Red Hat Enterprise Linux 9 (arm64)", icon, tags, all(later, on("arm64"))},
		{"rhel.9.s390x", "Red Hat Enterprise Linux 9 (s390x)", icon, tags, all(later, on("s390x"))},
		{"rhel.9.desktop", "Red Hat Enterprise Linux 9 Desktop (amd64)", icon, tags, all(onPC, desktop)},
		{"rhel.9.dpdk", "Red Hat Enterprise Linux 9 DPDK (amd64)", icon, tags, all(onPC, dpdk, needs(8, "1.5Gi"))},
		{"rhel.9.realtime", "Red Hat Enterprise Linux 9 Realtime (amd64)", icon, tags, all(onPC, realtime, needs(4, "4Gi"))},
		{"rhel.10", "Red Hat Enterprise Linux 10 (amd64)", icon, tags, onPC},
		{"rhel.10.arm64", "Red Hat Enterprise Linux 10 (arm64)", icon, tags, all(later, on("arm64"))},
		{"rhel.10.s390x", "Red Hat Enterprise Linux 10 (s390x)", icon, tags, all(later, on("s390x"))},
	}
}

func windowses() []guest {
	const icon, tags = "windows", "windows"
	signed := all(needs(1, "2Gi"), secureBoot)
	return slices.Concat(
		[]guest{
			{"windows.xp", "Microsoft Windows XP", icon, tags, all(windows, needs(1, "128Mi"), lowPCI)},
			{"windows.2k3", "Microsoft Windows Server 2003", icon, tags, all(windows, needs(1, "256Mi"), model("rtl8139"), lowPCI)},
		},
		withDrivers("windows.7", "Microsoft Windows 7", needs(1, "2Gi")),
		withDrivers("windows.2k8", "Microsoft Windows Server 2008/2008 R2", all(needs(1, "512Mi"), model("e1000"))),
		withDrivers("windows.2k12", "Microsoft Windows Server 2012/2012 R2", needs(1, "512Mi")),
		withDrivers("windows.10", "Microsoft Windows 10", signed),
		withDrivers("windows.2k16", "Microsoft Windows Server 2016", signed),
		withDrivers("windows.2k19", "Microsoft Windows Server 2019", signed),
		withDrivers("windows.11", "Microsoft Windows 11", all(needs(2, "4Gi"), trusted)),
		withDrivers("windows.2k22", "Microsoft Windows Server 2022", all(needs(1, "2Gi"), trusted)),
		withDrivers("windows.2k25", "Microsoft Windows Server 2025", all(needs(1, "2Gi"), trusted)),
	)
}
