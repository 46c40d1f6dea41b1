package goal

import (
	"math"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for what, c := range map[string]struct {
		value      float64
		unit, goal string
		want       Verdict
	}{
		"a figure without a goal":                          {7, "s", None, Without},
		"a time under its goal":                            {0.8, "s", "<= 1", Met},
		"a time at its goal":                               {1, "s", "<= 1", Met},
		"a time beyond its goal by less than noise":        {1.09, "s", "<= 1", Near},
		"a time beyond its goal by more than noise":        {1.11, "s", "<= 1", Missed},
		"a ratio beyond its goal by less than noise":       {1.3, "x", "<= 1.2", Near},
		"a speed under its goal by less than noise":        {0.82, "x", ">= 0.9", Near},
		"a speed under its goal by more than noise":        {0.8, "x", ">= 0.9", Missed},
		"memory beyond its goal, which has no noise":       {128.5, "MiB", "<= 128", Missed},
		"a count that is to be exact":                      {20, "runs", "20", Met},
		"a count that is to be exact and is not":           {19, "runs", "20", Missed},
		"a time that is to be exact, of which nothing is":  {20.1, "s", "20", Missed},
		"what is no number, of nothing divided by nothing": {math.NaN(), "x", "<= 1", Missed},
	} {
		tally := &Tally{Noise: 0.1}
		got, err := tally.Judge("a figure", c.value, c.unit, c.goal)
		if err != nil || got != c.want {
			t.Errorf("%s: %q and the error %v, not %q", what, got, err, c.want)
		}
		text, ok := tally.Summary()
		if ok != (c.want != Missed) {
			t.Errorf("%s: ok is %t, the summary:\n%s", what, ok, text)
		}
		if c.want == Without && text != "" {
			t.Errorf("%s: there is a summary of no goals:\n%s", what, text)
		}
		for _, word := range []string{"0 met", "1 missed", "missed: a figure: "} {
			if c.want == Missed && !strings.Contains(text, word) {
				t.Errorf("%s: the summary lacks %q:\n%s", what, word, text)
			}
		}
	}
}

func TestGoalsThatCannotBeRead(t *testing.T) {
	for _, goal := range []string{"", "soon", "<= 1.2 x the slowest", "< 3", "<="} {
		if verdict, err := new(Tally).Judge("a figure", 1, "s", goal); err == nil {
			t.Errorf("the goal %q gave the verdict %q", goal, verdict)
		}
	}
}

func TestNoise(t *testing.T) {
	for text, want := range map[string]float64{"": 10, "0": 0, "25": 25, "-1": 10, "much": 10} {
		if got := noise(text); got != want {
			t.Errorf("%s=%q is %v percent, not %v", EnvNoise, text, got, want)
		}
	}
}
