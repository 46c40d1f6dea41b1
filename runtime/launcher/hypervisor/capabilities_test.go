package hypervisor

import "testing"

func TestReplaceTimeChangesOneElement(t *testing.T) {
	document := []byte("<qemuCaps>\n  <qemuctime>0</qemuctime>\n  <selfctime>17</selfctime>\n  <selfvers>1</selfvers>\n</qemuCaps>")
	got := string(replaceTime(document, "qemuctime", 1795199397))
	want := "<qemuCaps>\n  <qemuctime>1795199397</qemuctime>\n  <selfctime>17</selfctime>\n  <selfvers>1</selfvers>\n</qemuCaps>"
	if got != want {
		t.Errorf("got %s", got)
	}
}

func TestWithoutABakedDescriptionNothingIsInstalled(t *testing.T) {
	if err := installCapabilities(t.TempDir()+"/none.xml", "/usr/sbin/libvirtd", t.TempDir()); err != nil {
		t.Error(err)
	}
}
