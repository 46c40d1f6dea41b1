// Command test runs every stage of the project's tests, independent ones side by
// side, and ends with a table of their times and the line "N passed, N failed".
//
//	go run ./hack/test [STAGE...]
//
// Each stage is a target of the Makefile, for the end-to-end suites with the suite's name;
// its output goes to bin/test/STAGE.log. A cluster that was not running before is stopped
// again at the end.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// logs is where the output of stages is kept.
const logs = "bin/test"

// stages are all there are, in the order in which they are begun.
var stages = slices.Concat(
	[]stage{
		{name: "cluster-up"},
		{name: "verify", behind: true},
		{name: "unit", target: []string{"unit", "UNIT=rest"}, behind: true}, // integration runs the tests of its packages
		{name: "images", needs: []string{"cluster-up"}},
	},
	long, // so begun as soon as they can be
	short,
	alone, // they leave the processors idle: what is behind ends beside them
	[]stage{
		// Half an hour: it is to end with those that are alone, and to take as little as it can from those before.
		{name: "integration", target: []string{"integration", "PART=api"}, needs: []string{"cluster-up"}, after: []string{"images", "e2e-tasks"}, behind: true},
		suite("faults", slices.Concat(suites, alone)...).only("faults", "!still"),
		suite("restart", slices.Concat(suites, alone, []stage{suite("faults")})...),
		{name: "devices", target: []string{"integration", "PART=node"}, needs: []string{"cluster-up"}, after: []string{"images"}},
		{name: "lint", behind: true},
	},
)

// suites are the end-to-end suites that bear each other on one cluster, the long ones first. One
// comes in two parts, of which the first has the specs of a label; of suite faults it is the part
// that stops nothing but processes of its own VMs and imports.
var (
	suites = slices.Concat(long, short)
	long   = []stage{
		suite("storage").only("storage", "!alone"), suite("lifecycle").only("lifecycle", "!alone"), suite("tasks"),
		suite("pipelines").only("publishing", apart), suite("pipelines").only("pipelines", "!"+apart),
		suite("verbs").only("verbs", "!alone"), suite("faults").only("still", "still"), suite("gitops"),
	}
	short = []stage{suite("admission").only("admission", "!alone"), suite("network")}
)

// alone are the specs that restart, or set in another way, what the other suites use: those of suite verbs, then of storage,
// admission and lifecycle.
var (
	consoles  = suite("verbs", suites...).only("consoles", "alone")
	snapshots = suite("storage", append(slices.Clone(suites), consoles)...).only("snapshots", "alone")
	settings  = suite("admission", append(slices.Clone(suites), consoles, snapshots)...).only("settings", "alone")
	machines  = suite("lifecycle", append(slices.Clone(suites), consoles, snapshots, settings)...).only("machines", "alone")
	alone     = []stage{consoles, snapshots, settings, machines}
)

// apart is the label of the specs of suite pipelines that make a part of their own.
const apart = "publishing"

// thorough is the label of specs that make test has no time for: long ones, of which others show the most. `make e2e` runs all.
const thorough = "thorough"

// only makes a part of a suite's stage: the specs that a filter of labels takes.
func (s stage) only(name, filter string) stage {
	s.name = "e2e-" + name
	s.target = append(s.target[:len(s.target)-1:len(s.target)-1], arguments(s.name, filter))
	return s
}

// suite is the stage that runs the end-to-end suite name, once the stages of after have ended: one
// that ends what the others use comes last.
func suite(name string, after ...stage) stage {
	return stage{
		name: "e2e-" + name, target: []string{"e2e-suite", "E2E=" + name, arguments("e2e-"+name, "")},
		needs: []string{"images"}, after: named(after),
	}
}

func named(stages []stage) (names []string) {
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}

// arguments are those of a suite whose stage has that name, with the specs that a filter of labels takes; make puts in where it runs.
func arguments(stage, filter string) string {
	if filter != "" {
		filter += " && "
	}
	return "E2E_ARGS='-ginkgo.label-filter=" + filter + "!" + thorough + "' -ginkgo.junit-report=$(CURDIR)/" + specsReport(stage)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only []string) error {
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("making the folder of logs: %w", err)
	}
	chosen := slices.DeleteFunc(slices.Clone(stages), func(s stage) bool {
		return len(only) > 0 && !slices.Contains(only, s.name)
	})
	ran := clusterRuns(ctx)
	begun := time.Now()
	for _, s := range chosen {
		if err := os.RemoveAll(specsReport(s.name)); err != nil {
			return fmt.Errorf("removing the report of a run before: %w", err)
		}
	}
	results := runAll(ctx, chosen)
	if !ran {
		results = append(results, stage{name: "cluster-down"}.run(context.WithoutCancel(ctx)))
	}
	return report(results, time.Since(begun))
}

// shown is how many of the slowest tests are told of at the end.
const shown = 25

// report prints the tables of times and the closing line.
func report(results []result, total time.Duration) error {
	passed, failed := 0, 0
	fmt.Printf("\n%-14s %9s %10s %8s %8s  %s\n", "stage", "time", "processors", "passed", "failed", "log")
	for _, r := range results {
		fmt.Printf("%-14s %9s %10s %8d %8d  %s\n", r.name, r.took.Round(time.Second), r.processors.Round(time.Second), r.passed, r.failed, filepath.Join(logs, r.name+".log"))
		passed, failed = passed+r.passed, failed+r.failed
	}
	fmt.Printf("%-14s %9s\n\n", "all", total.Round(time.Second))
	slow, err := slowest(results, shown)
	if err != nil {
		return err
	}
	fmt.Println("the slowest:")
	for _, t := range slow {
		fmt.Printf("%-14s %9s  %s\n", t.stage, t.took.Round(time.Second), t.name)
	}
	fmt.Println()
	for _, r := range results {
		for _, failure := range r.failures {
			fmt.Printf("%-14s %s\n", r.name, failure)
		}
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		return fmt.Errorf("tests failed; excerpts of the failed stages' logs are above")
	}
	return nil
}
