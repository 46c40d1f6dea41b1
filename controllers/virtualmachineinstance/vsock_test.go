package virtualmachineinstance

import "testing"

func TestFreeCID(t *testing.T) {
	for name, c := range map[string]struct {
		taken []uint32
		start uint32
		want  uint32
	}{
		"nobody has one":           {nil, 77, 77},
		"the first is taken":       {[]uint32{77, 78}, 77, 79},
		"the last is taken":        {[]uint32{maxCID}, maxCID, minCID},
		"the next after the bound": {[]uint32{maxCID, minCID, 4}, maxCID, 5},
	} {
		t.Run(name, func(t *testing.T) {
			taken := map[uint32]bool{}
			for _, cid := range c.taken {
				taken[cid] = true
			}
			if got, err := freeCID(taken, c.start); err != nil || got != c.want {
				t.Errorf("got %d, %v, want %d", got, err, c.want)
			}
		})
	}
}
