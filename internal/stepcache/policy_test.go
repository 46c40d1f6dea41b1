package stepcache

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// old is an entry that was filled and used so long ago.
func old(name string, ago time.Duration, change func(*Entry)) Entry {
	e := Entry{Name: name, UID: types.UID(name), Key: Key("step1:" + name), State: Ready, Digest: base, Size: 10, Filled: noon.Add(-ago - time.Hour), Used: noon.Add(-ago)}
	if change != nil {
		change(&e)
	}
	return e
}

func TestVictims(t *testing.T) {
	none := Policy{Count: -1, Age: -1, Size: -1}
	for name, c := range map[string]struct {
		entries []Entry
		policy  Policy
		want    []string
		again   time.Duration
	}{
		"nothing is over": {entries: []Entry{old("a", time.Hour, nil)}, policy: DefaultPolicy(), again: 30*24*time.Hour - time.Hour + time.Second},
		"no limits":       {entries: []Entry{old("a", 9999*time.Hour, nil)}, policy: none},
		"too old": {
			entries: []Entry{old("a", 2*time.Hour, nil), old("b", time.Minute, nil)}, policy: Policy{Count: -1, Age: time.Hour, Size: -1},
			want: []string{"a"}, again: 59*time.Minute + time.Second,
		},
		"too many, the least recently used go": {
			entries: []Entry{old("b", 2*time.Hour, nil), old("c", 3*time.Hour, nil), old("a", time.Hour, nil)},
			policy:  Policy{Count: 1, Age: -1, Size: -1}, want: []string{"b", "c"},
		},
		"too large": {
			entries: []Entry{old("b", 2*time.Hour, nil), old("a", time.Hour, nil), old("c", 3*time.Hour, nil)},
			policy:  Policy{Count: -1, Age: -1, Size: 15}, want: []string{"b", "c"},
		},
		"keep none": {entries: []Entry{old("a", time.Hour, nil)}, policy: Policy{Count: 0, Age: -1, Size: -1}, want: []string{"a"}},
		"one in use stays and counts": {
			entries: []Entry{old("a", 3*time.Hour, func(e *Entry) { e.InUse = true }), old("b", 2*time.Hour, nil), old("c", time.Hour, nil)},
			policy:  Policy{Count: 1, Age: time.Minute, Size: -1}, want: []string{"b", "c"}, again: time.Second,
		},
		"one just taken stays until it can be seen": {
			entries: []Entry{old("a", time.Minute, nil), old("b", 0, nil)},
			policy:  Policy{Count: 1, Age: -1, Size: -1}, want: nil, again: Grace - time.Minute + time.Second,
		},
		"one just filled and never taken goes": {
			entries: []Entry{old("a", 0, func(e *Entry) { e.Filled = e.Used })}, policy: Policy{Count: 0, Age: -1, Size: -1}, want: []string{"a"},
		},
		"a filling one is left alone":    {entries: []Entry{old("a", 9999*time.Hour, func(e *Entry) { e.State = Filling })}, policy: Policy{}},
		"an abandoned one goes":          {entries: []Entry{old("a", 0, func(e *Entry) { e.State, e.Abandoned = Filling, true })}, policy: none, want: []string{"a"}},
		"one that is going is no victim": {entries: []Entry{old("a", 9999*time.Hour, func(e *Entry) { e.Going = true }), old("b", time.Hour, nil)}, policy: Policy{Count: 1, Age: -1, Size: -1}},
		"a newer one of the same key": {
			entries: []Entry{old("a", 2*time.Hour, func(e *Entry) { e.Key = "step1:k" }), old("b", time.Hour, func(e *Entry) { e.Key = "step1:k" })},
			policy:  none, want: []string{"a"},
		},
		"a newer one of the same key on another class": {
			entries: []Entry{old("a", 2*time.Hour, func(e *Entry) { e.Key = "step1:k" }), old("b", time.Hour, func(e *Entry) { e.Key, e.Class = "step1:k", "fast" })},
			policy:  none,
		},
	} {
		t.Run(name, func(t *testing.T) {
			victims, again := Victims(c.entries, c.policy, noon)
			var got []string
			for _, v := range victims {
				got = append(got, v.Name)
				if v.Why == "" {
					t.Errorf("%s goes without a reason", v.Name)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("victims %v, want %v", victims, c.want)
			}
			if want := noon.Add(c.again); c.again != 0 && !again.Equal(want) || c.again == 0 && !again.IsZero() {
				t.Errorf("again at %v, want %v", again, want)
			}
		})
	}
}

// Whatever there is: nobody in use goes, what stays is within the limits as far as it may go, and asking again changes nothing.
func TestVictimsAreEnoughAndNoMore(t *testing.T) {
	for n := range 60 {
		var entries []Entry
		for i := range n % 13 {
			entries = append(entries, old(fmt.Sprint(i), time.Duration(i*7%13)*time.Hour+10*time.Minute, func(e *Entry) {
				e.Size, e.InUse = int64(i*i%7+1), (i+n)%5 == 0
			}))
		}
		p := Policy{Count: n % 5, Age: time.Duration(n%11+1) * time.Hour, Size: int64(n % 17)}
		victims, _ := Victims(entries, p, noon)
		gone := map[string]bool{}
		for _, v := range victims {
			gone[v.Name] = true
			if v.InUse {
				t.Fatalf("%d: %s is in use and goes", n, v.Name)
			}
		}
		left := slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return gone[e.Name] })
		again, _ := Victims(left, p, noon)
		if len(again) > 0 {
			t.Fatalf("%d: asked again, %v go as well", n, again)
		}
		free, size := 0, int64(0)
		for _, e := range left {
			size += e.Size
			if !e.InUse {
				free++
			}
		}
		if free > 0 && (len(left) > p.Count || size > p.Size) {
			t.Fatalf("%d: %d entries of %d bytes stay under %+v, %d of them free", n, len(left), size, p, free)
		}
	}
}

func TestParsePolicy(t *testing.T) {
	p, err := ParsePolicy(map[string]string{"maxCount": "3", "maxAge": "1h", "maxSize": "1Ki"})
	if want := (Policy{Count: 3, Age: time.Hour, Size: 1024}); err != nil || p != want {
		t.Errorf("%+v, %v; want %+v", p, err, want)
	}
	if p, err := ParsePolicy(nil); err != nil || p != DefaultPolicy() {
		t.Errorf("%+v, %v; want the default", p, err)
	}
	if p, err := ParsePolicy(map[string]string{"maxCount": "unlimited", "maxAge": "unlimited", "maxSize": "unlimited"}); err != nil || p.Count >= 0 || p.Age >= 0 || p.Size >= 0 {
		t.Errorf("%+v, %v; want no limits", p, err)
	}
	for bad, want := range map[[2]string]string{
		{"maxCount", "many"}: `maxCount: "many" is no number of entries`,
		{"maxCount", "-1"}:   `maxCount: "-1" is no number`,
		{"maxAge", "30d"}:    `maxAge: "30d" is no duration above zero; write for example 720h`,
		{"maxAge", "0s"}:     `maxAge: "0s" is no duration`,
		{"maxSize", "big"}:   `maxSize: "big" is no size`,
		{"maxCuont", "1"}:    `maxCuont is not known; write maxCount, maxAge, maxSize or from`,
	} {
		if _, err := ParsePolicy(maps.Collect(func(yield func(string, string) bool) { yield(bad[0], bad[1]) })); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %q", bad, err, want)
		}
	}
}
