package stepcache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ConfigName is the ConfigMap with a namespace's Policy.
const ConfigName = "slipway-step-cache"

// Keys of that ConfigMap.
const (
	ConfigCount = "maxCount"
	ConfigAge   = "maxAge"
	ConfigSize  = "maxSize"
)

// unlimited is the value of those keys for no limit.
const unlimited = "unlimited"

// Grace is how long an entry that was taken is kept whatever the limits say: until the clone
// that a run makes of it can be seen.
const Grace = 5 * time.Minute

// Policy says what is kept. A negative value is no limit.
type Policy struct {
	// Count is how many entries a namespace keeps, Age how long after their last use, Size how
	// many bytes their claims may ask for together.
	Count int
	Age   time.Duration
	Size  int64
}

// DefaultPolicy is that of a namespace that says nothing.
func DefaultPolicy() Policy {
	return Policy{Count: 20, Age: 30 * 24 * time.Hour, Size: 200 << 30}
}

// ParsePolicy reads a ConfigMap's data. Keys that are missing have their default; any other key,
// and a value that cannot be read, is an error that says what to write.
func ParsePolicy(data map[string]string) (Policy, error) {
	p := DefaultPolicy()
	var errs []error
	for key, value := range data {
		errs = append(errs, p.set(key, value))
	}
	return p, errors.Join(errs...)
}

func (p *Policy) set(key, value string) error {
	switch key {
	case ConfigCount:
		return p.setCount(value)
	case ConfigAge:
		return p.setAge(value)
	case ConfigSize:
		return p.setSize(value)
	case ConfigFrom:
		_, err := ParseFrom(value) // what is kept does not depend on it
		return err
	}
	return fmt.Errorf("%s is not known; write %s, %s, %s or %s", key, ConfigCount, ConfigAge, ConfigSize, ConfigFrom)
}

func (p *Policy) setCount(value string) error {
	n, err := strconv.Atoi(value)
	switch {
	case value == unlimited:
		n = -1
	case err != nil || n < 0:
		return fmt.Errorf("%s: %q is no number of entries; write for example 20, or %s", ConfigCount, value, unlimited)
	}
	p.Count = n
	return nil
}

func (p *Policy) setAge(value string) error {
	age, err := time.ParseDuration(value)
	switch {
	case value == unlimited:
		age = -1
	case err != nil || age <= 0:
		return fmt.Errorf("%s: %q is no duration above zero; write for example 720h, or %s", ConfigAge, value, unlimited)
	}
	p.Age = age
	return nil
}

func (p *Policy) setSize(value string) error {
	if value == unlimited {
		p.Size = -1
		return nil
	}
	size, err := resource.ParseQuantity(value)
	if err != nil || size.Sign() < 0 {
		return fmt.Errorf("%s: %q is no size; write for example 200Gi, or %s", ConfigSize, value, unlimited)
	}
	p.Size = size.Value()
	return nil
}

// Victim is an entry that is to go, and why.
type Victim struct {
	Entry
	Why string
}

// Victims returns the entries that are to go now, and when to ask again if nothing changes; the
// zero time when there is nothing to wait for. Entries that are in use, or were taken within Grace,
// stay, and count. Of the others those go first that were not used for the longest time.
func Victims(entries []Entry, p Policy, now time.Time) (victims []Victim, again time.Time) {
	var kept []Entry
	for _, e := range entries {
		why, wait := p.sift(e, entries, now)
		switch {
		case e.Going:
			continue
		case why != "":
			victims = append(victims, Victim{e, why})
		case e.State == Ready:
			kept = append(kept, e)
		}
		again = sooner(again, wait)
	}
	over, wait := p.trim(kept, now)
	return append(victims, over...), sooner(again, wait)
}

// sift says why an entry is to go by itself, whatever the others are, or when to ask again.
func (p Policy) sift(e Entry, all []Entry, now time.Time) (why string, again time.Time) {
	switch {
	case e.Going:
	case e.State == Filling:
		if e.Abandoned {
			return "nobody fills it any more", again
		}
	case superseded(e, all) && !busy(e, now):
		return "a newer entry has its key", again
	case p.Age >= 0 && now.Sub(e.Used) > p.Age && !busy(e, now):
		return fmt.Sprintf("it was not used for more than %s", p.Age), again
	case p.Age >= 0:
		return "", latest(e.Used.Add(p.Age), now).Add(time.Second) // one in use is looked at when its use ends, too
	}
	return "", again
}

// trim picks the least recently used entries until the others are within the limits.
func (p Policy) trim(kept []Entry, now time.Time) (victims []Victim, again time.Time) {
	slices.SortFunc(kept, func(a, b Entry) int {
		return cmp.Or(a.Used.Compare(b.Used), a.Filled.Compare(b.Filled), cmp.Compare(a.Name, b.Name))
	})
	count, size := len(kept), int64(0)
	for _, e := range kept {
		size += e.Size
	}
	for _, e := range kept {
		why := ""
		switch {
		case p.Count >= 0 && count > p.Count:
			why = fmt.Sprintf("there are more than %d entries", p.Count)
		case p.Size >= 0 && size > p.Size:
			why = fmt.Sprintf("the entries ask for more than %s", text(p.Size))
		default:
			return victims, again
		}
		switch {
		case e.InUse: // the end of its use is seen
		case busy(e, now):
			again = sooner(again, e.Used.Add(Grace+time.Second))
		default:
			count--
			size -= e.Size
			victims = append(victims, Victim{e, why})
		}
	}
	return victims, again
}

// sooner returns the earlier of two times, of which the zero time is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// busy reports whether the entry must not go because a run reads it or is about to.
func busy(e Entry, now time.Time) bool {
	return e.InUse || e.Used.After(e.Filled) && now.Sub(e.Used) <= Grace
}

// superseded reports whether another entry has the same key and place and was filled later.
func superseded(e Entry, all []Entry) bool {
	return slices.ContainsFunc(all, func(o Entry) bool {
		return o.UID != e.UID && o.State == Ready && !o.Going && o.Key == e.Key && o.Class == e.Class && o.Mode == e.Mode &&
			(o.Filled.After(e.Filled) || o.Filled.Equal(e.Filled) && o.Name > e.Name)
	})
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func quantity(bytes int64) resource.Quantity { return *resource.NewQuantity(bytes, resource.BinarySI) }

func text(bytes int64) string {
	q := quantity(bytes)
	return q.String()
}
