package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTestsHaveTheirTimes(t *testing.T) {
	got := tests("unit", "=== RUN TestA\n--- PASS: TestA (1.50s)\n    --- PASS: TestA/part (1.40s)\n--- FAIL: TestB (0.02s)\nok  x 1.6s\n")
	want := []timed{{"unit", "TestA", 1500 * time.Millisecond}, {"unit", "TestB", 20 * time.Millisecond}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSpecsHaveTheirTimes(t *testing.T) {
	got, err := specsOf("e2e-tasks", strings.NewReader(`<?xml version="1.0"?>
<testsuites tests="1"><testsuite name="tasks"><testcase name="[It] a task works" status="passed" time="62.25"></testcase></testsuite></testsuites>`))
	want := []timed{{"e2e-tasks", "[It] a task works", 62250 * time.Millisecond}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v (%v), want %v", got, err, want)
	}
	if _, err := specsOf("e2e-tasks", strings.NewReader("<testsuites>")); err == nil {
		t.Error("half a report is read")
	}
}
