//go:build e2e

package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// auditLog reads the API server's audit log of the local cluster from where it ended when the
// log was opened. See https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/.
type auditLog struct {
	file *os.File
}

// auditEvent is what the benchmarks need of audit.k8s.io/v1 Event.
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource string `json:"resource"`
	} `json:"objectRef"`
}

// openAudit opens the log in the folder of the cluster's logs, at its end.
func openAudit(folder string) (*auditLog, error) {
	file, err := os.Open(filepath.Join(folder, "audit.log"))
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the audit log: %w", err), file.Close())
	}
	return &auditLog{file: file}, nil
}

// close closes the log.
func (a *auditLog) close() error { return a.file.Close() }

// writes counts the writes of the service accounts of a namespace since the log was opened, by
// account, verb and resource. The API server writes the log with a delay of up to a minute:
// wait that long before, or take the counts as a rate over a long time.
func (a *auditLog) writes(namespace string) (map[string]int, error) {
	counts := map[string]int{}
	scanner := bufio.NewScanner(a.file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var event auditEvent
		if json.Unmarshal(scanner.Bytes(), &event) != nil {
			continue // the last line may be under way
		}
		account, ours := strings.CutPrefix(event.User.Username, "system:serviceaccount:"+namespace+":")
		if ours && slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, event.Verb) {
			counts[account+" "+event.Verb+" "+event.ObjectRef.Resource]++
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return counts, nil
}

// printCounts prints the counts and returns their sum.
func printCounts(out io.Writer, counts map[string]int) int {
	sum := 0
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(out, "    %-64s %4d\n", what, counts[what])
		sum += counts[what]
	}
	return sum
}
