package guestid

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAGuestKeepsTheNameThatIsNoted(t *testing.T) {
	for name, c := range map[string]struct{ noted, want string }{
		"nothing is noted":           {"", "web"},
		"the name before its rename": {"shop", "shop"},
		"what would leave a folder":  {"../../etc/passwd", "web"},
		"a folder itself":            {"..", "web"},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &metav1.ObjectMeta{Name: "web"}
			if c.noted != "" {
				vmi.Annotations = map[string]string{AnnotationName: c.noted}
			}
			if got := Name(vmi); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestAnAddressFollowsFromTheNames(t *testing.T) {
	mac := MAC("shop", "web", "default")
	if mac.String() != MAC("shop", "web", "default").String() || mac.String() == MAC("shop", "web2", "default").String() {
		t.Errorf("the address is %s", mac)
	}
	if mac[0]&0x03 != 0x02 {
		t.Errorf("%s is not unicast and locally administered", mac)
	}
}
