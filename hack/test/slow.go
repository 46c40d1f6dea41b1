package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// timed is a test, or a spec of a suite, and how long it took.
type timed struct {
	stage, name string
	took        time.Duration
}

// ended is a line of go test -v that tells of one test as a whole.
var ended = regexp.MustCompile(`(?m)^--- (?:PASS|FAIL): (\S+) \(([0-9.]+)s\)`)

// tests are those of go test's output.
func tests(stage, output string) []timed {
	var all []timed
	for _, match := range ended.FindAllStringSubmatch(output, -1) {
		all = append(all, timed{stage, match[1], seconds(match[2])})
	}
	return all
}

// specsReport is where the suite of a stage writes how long each of its specs took, as JUnit's reports have it.
func specsReport(stage string) string { return filepath.Join(logs, stage+".xml") }

// specsOf reads a suite's report.
func specsOf(stage string, report io.Reader) ([]timed, error) {
	var read struct {
		Cases []struct {
			Name string `xml:"name,attr"`
			Time string `xml:"time,attr"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.NewDecoder(report).Decode(&read); err != nil {
		return nil, fmt.Errorf("reading the report of %s: %w", stage, err)
	}
	all := make([]timed, 0, len(read.Cases))
	for _, c := range read.Cases {
		all = append(all, timed{stage, c.Name, seconds(c.Time)})
	}
	return all, nil
}

// seconds of a decimal number; 0 of what is none.
func seconds(decimal string) time.Duration {
	s, _ := strconv.ParseFloat(decimal, 64)
	return time.Duration(s * float64(time.Second))
}

// slowest are the n tests and specs of the stages that took longest.
func slowest(results []result, n int) ([]timed, error) {
	var all []timed
	for _, r := range results {
		report, err := os.Open(specsReport(r.name))
		if err != nil {
			all = append(all, r.tests...) // a stage without a suite
			continue
		}
		specs, err := specsOf(r.name, report)
		_ = report.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, specs...)
	}
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
	return all[:min(n, len(all))], nil
}
