package supported

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Every path of a list must be one of the type's: a leaf, or above one.
func TestListsNameOnlyFieldsOfTheTypes(t *testing.T) {
	small := map[string]int{Snapshot: 5, Restore: 12, Export: 5, Clone: 14, Backup: 9, BackupTracker: 3, ObjectTransfer: 8, VolumeImportSource: 30, VolumeUploadSource: 2, VolumeCloneSource: 5}
	for kind, list := range lists() {
		leaves := leavesOf(kind)
		least := 40
		if few, ok := small[kind]; ok {
			least = few
		}
		if len(leaves) < least {
			t.Fatalf("%s: only %d leaves were found in its type", kind, len(leaves))
		}
		known := map[string]bool{}
		for path := range leaves {
			for ; path != ""; path = parent(path) {
				known[path] = true
			}
		}
		seen := map[string]bool{}
		for _, f := range list {
			if !known[f.Path] && !insideLeaf(leaves, f.Path) {
				t.Errorf("%s: the list has %s, which the type has not", kind, f.Path)
			}
			if seen[f.Path] {
				t.Errorf("%s: the list has %s twice", kind, f.Path)
			}
			seen[f.Path] = true
		}
	}
}

func insideLeaf(leaves map[string]leaf, path string) bool {
	for ; path != ""; path = parent(path) {
		if _, ok := leaves[path]; ok {
			return true
		}
	}
	return false
}

// Every leaf of the types is either acted on or refused, by what Unsupported says of an
// object that has just that leaf.
func TestEveryLeafIsEitherSupportedOrRefused(t *testing.T) {
	for _, kind := range Kinds() {
		table := tables()[kind]
		for _, path := range slices.Sorted(maps.Keys(table.leaves)) {
			value := any("some value")
			if table.leaves[path].empty {
				value = map[string]any{}
			}
			if only := onlyOf(table, path); len(only) > 0 {
				value = only[0]
			}
			errs := Unsupported(kind, build(path, value))
			switch covered := table.covers(path); {
			case covered && len(errs) > 0:
				t.Errorf("%s: %s is on the list and refused: %v", kind, path, errs)
			case !covered && len(errs) != 1:
				t.Errorf("%s: %s is not on the list and passes", kind, path)
			case !covered && plain(errs[0].Field) != path:
				t.Errorf("%s: %s is refused as %s", kind, path, errs[0].Field)
			}
		}
	}
}

func onlyOf(table *table, path string) []string {
	for ; path != ""; path = parent(path) {
		if f, ok := table.fields[path]; ok {
			return f.Only
		}
	}
	return nil
}

// build makes an object in which only path is set.
func build(path string, value any) map[string]any {
	for {
		up := parent(path)
		if strings.HasSuffix(path, "[]") {
			value = []any{value}
		} else {
			name := strings.TrimPrefix(strings.TrimPrefix(path, up), ".")
			value = map[string]any{name: value}
		}
		if up == "" {
			return value.(map[string]any)
		}
		path = up
	}
}

func plain(path string) string { return strings.ReplaceAll(path, "[0]", "[]") }

func TestValuesThatSayNothingPass(t *testing.T) {
	domain := func(devices map[string]any) map[string]any {
		return map[string]any{"spec": map[string]any{"domain": map[string]any{"devices": devices}}}
	}
	for name, c := range map[string]struct {
		object map[string]any
		want   []string
	}{
		"an unset flag that is the same as none": {domain(map[string]any{"disks": []any{map[string]any{"name": "a", "tag": ""}}}), nil},
		"an empty list":                          {domain(map[string]any{"gpus": []any{}}), nil},
		"a null":                                 {domain(map[string]any{"gpus": nil}), nil},
		"an empty struct above supported fields": {domain(map[string]any{"watchdog": map[string]any{}}), nil},
		"an empty struct that is a wish":         {domain(map[string]any{"interfaces": []any{map[string]any{"sriov": map[string]any{}}}}), []string{"spec.domain.devices.interfaces[0].sriov"}},
		"an optional flag whose false differs from nil": {
			domain(map[string]any{"disks": []any{map[string]any{"changedBlockTracking": false}}}), []string{"spec.domain.devices.disks[0].changedBlockTracking"},
		},
		"a value beside those acted on": {domain(map[string]any{"sound": map[string]any{"model": "sb16"}}), []string{"spec.domain.devices.sound.model"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range Unsupported(VirtualMachineInstance, c.object) {
				got = append(got, err.Field)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("refused %v, want %v", got, c.want)
			}
		})
	}
}

func TestMarkdownListsBothSides(t *testing.T) {
	text := Markdown(VirtualMachineInstance)
	for _, want := range []string{"| `spec.domain.cpu.cores` |", "- `spec.domain.devices.gpus[].deviceName`", "LiveMigratable is False"} {
		if !strings.Contains(text, want) {
			t.Errorf("the docs lack %s", want)
		}
	}
}
