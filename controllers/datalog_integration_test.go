//go:build integration

package controllers

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
)

// dataLog is what the controllers of shared log to that do CDI's work.
var dataLog = &record{controllers: map[string]bool{}}

// record notes which controllers log.
type record struct {
	mu          sync.Mutex
	controllers map[string]bool
}

func (r *record) logger() logr.Logger {
	named := regexp.MustCompile(`"controller"="([^"]+)"`)
	return funcr.New(func(_, line string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, match := range named.FindAllStringSubmatch(line, -1) {
			r.controllers[match[1]] = true
		}
	}, funcr.Options{})
}

func (r *record) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.controllers))
}

// Each controller says when it starts: by which log tells whose work it does.
func TestWhatIsLoggedOfCDIsWork(t *testing.T) {
	start(t)
	want := []string{"cdiconfig", "dataimportcron", "datasource", "datavolume", "objecttransfer", "storageprofile"}
	gomega.NewWithT(t).Eventually(dataLog.all).WithTimeout(time.Minute).Should(gomega.ContainElements(want), fmt.Sprint(want))
	for _, other := range []string{"virtualmachine", "virtualmachineinstance", "node", "hostpathprovisioner"} {
		if slices.Contains(dataLog.all(), other) {
			t.Errorf("%s does not do CDI's work", other)
		}
	}
}
