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
	free := value == unlimited
	switch key {
	case ConfigCount:
		n, err := strconv.Atoi(value)
		if !free && (err != nil || n < 0) {
			return fmt.Errorf("%s: %q is no number of entries; write for example 20, or %s", key, value, unlimited)
		}
		p.Count = n
		if free {
			p.Count = -1
		}
	case ConfigAge:
		age, err := time.ParseDuration(value)
		if !free && (err != nil || age <= 0) {
			return fmt.Errorf("%s: %q is no duration above zero; write for example 720h, or %s", key, value, unlimited)
		}
		p.Age = age
		if free {
			p.Age = -1
		}
	case ConfigSize:
		size, err := resource.ParseQuantity(value)
		if !free && (err != nil || size.Sign() < 0) {
			return fmt.Errorf("%s: %q is no size; write for example 200Gi, or %s", key, value, unlimited)
		}
		p.Size = size.Value()
		if free {
			p.Size = -1
		}
	default:
		return fmt.Errorf("%s is not known; write %s, %s or %s", key, ConfigCount, ConfigAge, ConfigSize)
	}
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
	later := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	for _, e := range entries {
		switch {
		case e.Going:
		case e.State == Filling && e.Abandoned:
			victims = append(victims, Victim{e, "nobody fills it any more"})
		case e.State == Filling:
		case superseded(e, entries) && !busy(e, now):
			victims = append(victims, Victim{e, "a newer entry has its key"})
		case p.Age >= 0 && now.Sub(e.Used) > p.Age && !busy(e, now):
			victims = append(victims, Victim{e, fmt.Sprintf("it was not used for more than %s", p.Age)})
		default:
			kept = append(kept, e)
			if p.Age >= 0 {
				later(latest(e.Used.Add(p.Age), now).Add(time.Second)) // one in use is looked at when its use ends, too
			}
		}
	}
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
		}
		if why == "" {
			break
		}
		if busy(e, now) {
			if !e.InUse {
				later(e.Used.Add(Grace + time.Second))
			}
			continue
		}
		count--
		size -= e.Size
		victims = append(victims, Victim{e, why})
	}
	return victims, again
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
