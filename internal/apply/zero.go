package apply

import (
	"encoding/json"
	"fmt"
)

// WithoutNulls returns value, a tree of JSON values, without the nulls in its maps.
// An empty map stays: emptyDir: {} says something.
func WithoutNulls(value any) any {
	return prune(value, func(v any) bool { return v == nil })
}

// WithoutZero returns value, a tree of JSON values, without what says nothing in a
// status: nulls, empty strings, empty maps and empty lists. Numbers and booleans stay,
// for a zero or a false may be meant; Go types mark the optional ones omitempty.
// Items of lists stay even when they are empty, so that positions hold.
// It returns nil when nothing is left.
func WithoutZero(value any) any {
	pruned := prune(value, isZero)
	if isZero(pruned) {
		return nil
	}
	return pruned
}

func isZero(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// required says whether the API demands key, although item says nothing: a volume of a VMI
// has a target also before the guest has its disk.
func required(key string, item any) bool { return key == "target" && item == "" }

func prune(value any, drop func(any) bool) any {
	switch v := value.(type) {
	case map[string]any:
		kept := make(map[string]any, len(v))
		for key, item := range v {
			if item = prune(item, drop); !drop(item) || required(key, item) {
				kept[key] = item
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, item := range v {
			kept[i] = prune(item, drop)
		}
		return kept
	}
	return value
}

func toJSONValue(value any) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encoding as JSON: %w", err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("decoding JSON: %w", err)
	}
	return out, nil
}
