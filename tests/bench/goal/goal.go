// Package goal holds the figures of benchmarks against the goals that the project has set for them,
// and counts those that are missed. A program of benchmarks prints that count last and fails when
// it is not zero, so that nobody overlooks a miss between two hundred lines of figures.
package goal

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// EnvNoise is the environment variable that says by how many percent of its goal a noisy figure may
// lie beyond it.
const EnvNoise = "SLIPWAY_BENCH_NOISE"

// defaultNoise is that without EnvNoise: what two runs on one machine differ by when it does something else as well.
const defaultNoise = 10

// noisy are the units of figures that other work on the machine changes: times, speeds, and what is
// made of two of them. Counts and memory are the same in each run, and held to their goals as they stand.
var noisy = []string{"s", "ms", "x", "%", "/s", "MiB/s"}

// None is the goal of a figure that only explains others.
const None = "-"

// Verdict is how a figure stands to its goal.
type Verdict string

// Verdicts. Near is beyond the goal by no more than noise.
const (
	Without Verdict = "-"
	Met     Verdict = "ok"
	Near    Verdict = "near"
	Missed  Verdict = "MISS"
)

// Tally counts verdicts. Its zero value judges without noise.
type Tally struct {
	// Noise is the part of its goal by which a noisy figure may lie beyond it.
	Noise float64

	mu     sync.Mutex
	counts map[Verdict]int
	missed []string // a line for each
}

// Judge says how a figure stands to its goal, which is "<= 1.2", ">= 0.9", "20" for exactly that, or None.
func (t *Tally) Judge(what string, value float64, unit, goal string) (Verdict, error) {
	verdict, err := t.verdict(value, unit, goal)
	if err != nil {
		return "", fmt.Errorf("judging %q: %w", what, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[Verdict]int{}
	}
	t.counts[verdict]++
	if verdict == Missed {
		t.missed = append(t.missed, fmt.Sprintf("%s: %.4g %s, the goal is %s", what, value, unit, goal))
	}
	return verdict, nil
}

func (t *Tally) verdict(value float64, unit, goal string) (Verdict, error) {
	if goal == None {
		return Without, nil
	}
	relation, number, found := strings.Cut(goal, " ")
	if !found {
		relation, number = "=", goal
	}
	limit, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return "", fmt.Errorf("the goal %q has no number; write <= 1.2, >= 0.9, 20 or %s", goal, None)
	}
	room := 0.0
	if slices.Contains(noisy, unit) {
		room = t.Noise * limit
	}
	// Said of what is right: a figure that is no number meets nothing.
	var met, near bool
	switch relation {
	case "<=":
		met, near = value <= limit, value <= limit+room
	case ">=":
		met, near = value >= limit, value >= limit-room
	case "=":
		met = value == limit
	default:
		return "", fmt.Errorf("the goal %q begins with neither <= nor >=; write <= 1.2, >= 0.9, 20 or %s", goal, None)
	}
	switch {
	case met:
		return Met, nil
	case near:
		return Near, nil
	}
	return Missed, nil
}

// Summary is what is said at the end, "" when no figure had a goal, and whether all goals were met.
func (t *Tally) Summary() (text string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	met, near, missed := t.counts[Met], t.counts[Near], t.counts[Missed]
	if met+near+missed == 0 {
		return "", true
	}
	var b strings.Builder
	fmt.Fprintf(&b, "goals: %d met, %d beyond their goal by at most the noise of %.0f %%, %d missed\n", met, near, 100*t.Noise, missed)
	for _, line := range t.missed {
		fmt.Fprintln(&b, "  missed:", line)
	}
	return b.String(), missed == 0
}

// run is the tally of this program.
var run = &Tally{Noise: noise(os.Getenv(EnvNoise)) / 100}

// noise reads the percentage; what is none gives the default.
func noise(text string) float64 {
	if percent, err := strconv.ParseFloat(text, 64); err == nil && percent >= 0 {
		return percent
	}
	return defaultNoise
}

// Judge is Tally's for the tally of this program. A goal that cannot be read ends the benchmark.
func Judge(b *testing.B, what string, value float64, unit, goal string) Verdict {
	b.Helper()
	verdict, err := run.Judge(what, value, unit, goal)
	if err != nil {
		b.Fatal(err)
	}
	return verdict
}

// Report prints a figure beside its goal and gives it to go test.
func Report(b *testing.B, what string, value float64, unit, goal string) {
	b.Helper()
	verdict := Judge(b, what, value, unit, goal)
	if verdict == Without {
		fmt.Printf("  %-74s %9.1f %s\n", what, value, unit)
	} else {
		fmt.Printf("  %-74s %9.2f %-8s goal %-8s %s\n", what, value, unit, goal, verdict)
	}
	b.ReportMetric(value, strings.ReplaceAll(what, " ", "-")+"-"+unit)
}

// Main runs the benchmarks, prints the summary behind all that they print, and returns the code to
// exit with: not zero when a goal was missed, even though every benchmark ran to its end.
func Main(m *testing.M) int {
	code := m.Run()
	text, ok := run.Summary()
	fmt.Print(text)
	if !ok && code == 0 {
		code = 1
	}
	return code
}
