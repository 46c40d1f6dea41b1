package main

import "testing"

func TestCount(t *testing.T) {
	cases := map[string]struct {
		output         string
		passed, failed int
	}{
		"nothing":                    {"generated\n", 0, 0},
		"tests of packages":          {"--- PASS: TestA (0.00s)\n    --- PASS: TestA/x\n--- FAIL: TestB (0.00s)\nok  \tx\n", 1, 1},
		"a package that won't build": {"FAIL\tgithub.com/x/y [build failed]\n--- PASS: TestA (0.00s)\n", 1, 1},
		"a suite of specs":           {"Ran 12 of 12 Specs in 1 seconds\nSUCCESS! -- 12 Passed | 0 Failed | 0 Pending | 0 Skipped\n--- PASS: TestSuite (1s)\n", 12, 0},
		"a suite that failed":        {"FAIL! -- 3 Passed | 2 Failed | 0 Pending\n--- FAIL: TestSuite (1s)\n--- PASS: TestOther (1s)\n", 4, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if passed, failed := count(c.output); passed != c.passed || failed != c.failed {
				t.Fatalf("got %d, %d; want %d, %d", passed, failed, c.passed, c.failed)
			}
		})
	}
}
