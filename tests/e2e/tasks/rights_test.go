//go:build e2e

package tasks

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-vm/slipway/tasks"
	"github.com/slipway-vm/slipway/tasks/cached"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

// begun is when the suite began: what the audit log says of before is not this suite's.
var begun = time.Now()

// boundAudit is how long the API server may take to write its audit log.
const boundAudit = 5 * time.Minute

// manual is why no task starts a VM through its subresource; tasks/newvm tests that call.
const manual = "only a VM of runStrategy Manual is started so, which Slipway does not take yet"

// whileStopping is when a task asks for one pod again.
const whileStopping = "only a task that waits for the pod of a VM that is stopping asks for it"

// unusedHere are the verbs of rules that this suite does not come to use, with the reason. Each is used
// where tasks are rehearsed against an API server, which fails for a rule without a call.
var unusedHere = map[string]map[string]string{
	"create-vm-from-manifest": {"update virtualmachines/start": manual},
	"create-vm-from-template": {"update virtualmachines/start": manual},
	"generate-ssh-keys": {
		"delete secrets": "only a try that was ended between the two halves leaves something to remove",
	},
	"modify-data-object": {
		"update datasources": "only a source of another kind has to be written over, and Slipway's DataSources have one kind",
	},
	"disk-uploader": {
		"get pods": whileStopping,
	},
	"modify-windows-iso-file": {
		"get pods": whileStopping, "watch pods": whileStopping,
	},
	"create-datavolume-from-manifest": {
		"delete datavolumes":            "only a retry after a failed DataVolume removes it",
		"get persistentvolumeclaims":    "only a retry after a failed DataVolume, or CDI's collection of one, asks for the claim",
		"watch persistentvolumeclaims":  "only a retry after a failed DataVolume waits for the claim's end",
		"delete persistentvolumeclaims": "only a retry after a failed DataVolume removes its claim",
		"get datavolumes":               "only a retry after a failed DataVolume asks for it by name",
	},
}

// audited is what is needed of an event of audit.k8s.io/v1.
type audited struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Received    metav1.MicroTime  `json:"requestReceivedTimestamp"`
	Annotations map[string]string `json:"annotations"`
}

// call names what was asked for as RBAC does.
func (a *audited) call() string {
	resource := a.ObjectRef.Resource
	if a.ObjectRef.Subresource != "" {
		resource += "/" + a.ObjectRef.Subresource
	}
	return a.Verb + " " + resource
}

// A task's Role is what the task uses: no call of its ServiceAccount was forbidden, and after a whole run
// of the suite no rule is without a call.
var _ = ReportAfterSuite("every task keeps to its rights and uses them", func(ctx SpecContext, report Report) {
	if suite.World == nil || ns == "" {
		return // the suite did not begin, and says so
	}
	if suite.World.Local.Log == "" {
		AddReportEntry("not compared", "an existing cluster's audit log is not at hand")
		return
	}
	events, err := auditLog(ctx, suite.World.Local.Log)
	Expect(err).NotTo(HaveOccurred())
	used, problems := map[string]map[string]bool{}, []string{}
	for _, event := range events {
		account, ours := strings.CutPrefix(event.User.Username, "system:serviceaccount:"+ns+":")
		task, isTask := strings.CutSuffix(account, "-task")
		if !ours || !isTask || event.Received.Time.Before(begun) {
			continue
		}
		if event.Annotations["authorization.k8s.io/decision"] == "forbid" {
			problems = append(problems, fmt.Sprintf("%s was forbidden: %s %s", task, event.call(), event.ObjectRef.Name))
		}
		if used[task] == nil {
			used[task] = map[string]bool{}
		}
		used[task][event.call()] = true
	}
	if whole(report) {
		for _, task := range tasks.All() {
			problems = append(problems, unused(task, used[task.Name])...)
		}
	}
	slices.Sort(problems)
	Expect(slices.Compact(problems)).To(BeEmpty(), "the calls of the tasks' ServiceAccounts are not those of their Roles")
}, NodeTimeout(boundAudit+time.Minute))

// whole says whether every spec of the suite ran and passed.
func whole(report Report) bool {
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType.Is(types.NodeTypeIt) && !spec.State.Is(types.SpecStatePassed) {
			return false
		}
	}
	return report.SuiteSucceeded
}

// ofStepCache are calls of the step cache. Which of them a run makes depends on what it finds: the suite
// of pipelines runs into entries, and tasks/cached rehearses all of them.
func ofStepCache(task *declare.Task, call string) bool {
	if _, caches := task.Param(cached.ParamMode); !caches {
		return false
	}
	for _, rule := range append(cached.Rules(), cached.DiskRule()) {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				if call == verb+" "+resource {
					return true
				}
			}
		}
	}
	return false
}

// unused are the verbs of the task's rules that no call used. The client watches with a list in front
// where the API server cannot stream it, so a watch stands for a list too.
func unused(task *declare.Task, used map[string]bool) []string {
	if task.Name == "restore-step-cache" {
		return nil // the suite of pipelines runs it
	}
	var problems []string
	for _, rule := range task.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				call := verb + " " + resource
				if used[call] || verb == "list" && used["watch "+resource] || unusedHere[task.Name][call] != "" || ofStepCache(task, call) {
					continue
				}
				if verb == "list" && unusedHere[task.Name]["watch "+resource] != "" {
					continue
				}
				problems = append(problems, task.Name+" has a rule that no call used: "+call)
			}
		}
	}
	return problems
}

// auditLog reads the API server's audit log, its older file first, once all is in it that was done until now.
func auditLog(ctx context.Context, folder string) ([]audited, error) {
	marker := "audit-" + rand.String(10)
	if err := leaveMark(ctx, marker); err != nil {
		return nil, err
	}
	var events []audited
	Eventually(func(g Gomega) {
		files, err := filepath.Glob(filepath.Join(folder, "audit*.log"))
		g.Expect(err).NotTo(HaveOccurred())
		events = nil
		for _, file := range files {
			read, err := readAudit(file)
			g.Expect(err).NotTo(HaveOccurred())
			events = append(events, read...)
		}
		g.Expect(slices.ContainsFunc(events, func(e audited) bool { return e.ObjectRef.Name == marker })).To(BeTrue(), "waiting until the audit log of %d events has the mark", len(events))
	}).WithContext(ctx).WithTimeout(boundAudit).WithPolling(2 * time.Second).Should(Succeed())
	if len(events) == 0 {
		return nil, errors.New("the audit log is empty")
	}
	return events, nil
}

// leaveMark makes a call as a ServiceAccount, which the audit log notes after all calls before.
func leaveMark(ctx context.Context, marker string) error {
	token, err := suite.World.Kube.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking for a token: %w", err)
	}
	config := rest.AnonymousClientConfig(suite.World.Config)
	config.BearerToken = token.Status.Token
	account, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting as a ServiceAccount: %w", err)
	}
	if _, err = account.CoreV1().ConfigMaps(ns).Get(ctx, marker, metav1.GetOptions{}); err == nil {
		return errors.New("there is a ConfigMap " + marker)
	}
	return nil
}

// readAudit reads one file of the log. Its last line may be under way.
func readAudit(path string) ([]audited, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	var events []audited
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var event audited
		if json.Unmarshal(scanner.Bytes(), &event) == nil {
			events = append(events, event)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return events, nil
}

// What is excused is a rule of a task.
var _ = Describe("the excused rules", func() {
	It("are rules that there are", func() {
		for name, calls := range unusedHere {
			task, err := declare.Find(tasks.All(), name)
			Expect(err).NotTo(HaveOccurred())
			Expect(unusedOf(task)).To(ContainElements(slices.Collect(maps.Keys(calls))), name)
		}
	})
})

// unusedOf are all verbs of a task's rules.
func unusedOf(task *declare.Task) []string {
	var all []string
	for _, rule := range task.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, verb+" "+resource)
			}
		}
	}
	return all
}
