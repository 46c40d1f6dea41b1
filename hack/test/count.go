package main

import (
	"regexp"
	"strconv"
)

var (
	goTest = regexp.MustCompile(`(?m)^--- (PASS|FAIL): `)
	broken = regexp.MustCompile(`(?m)^FAIL\s+\S+ \[(build|setup) failed\]`)
	specs  = regexp.MustCompile(`-- (?:\x1b\[[0-9;]*m)*(\d+) Passed(?:\x1b\[[0-9;]*m)* \| (?:\x1b\[[0-9;]*m)*(\d+) Failed`)
)

// count returns how many tests passed and failed by the output of go test -v: top-level
// tests, and in their place the specs of suites that have specs.
func count(output string) (passed, failed int) {
	for _, match := range goTest.FindAllStringSubmatch(output, -1) {
		if match[1] == "PASS" {
			passed++
		} else {
			failed++
		}
	}
	for _, match := range specs.FindAllStringSubmatch(output, -1) {
		p, _ := strconv.Atoi(match[1]) // digits by the expression
		f, _ := strconv.Atoi(match[2])
		if f > 0 {
			failed-- // the suite's own go test
		} else {
			passed--
		}
		passed, failed = passed+p, failed+f
	}
	return max(passed, 0), max(failed, 0) + len(broken.FindAllString(output, -1))
}
