//go:build integration

package kvm

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// proofVariable makes this test's own program the proving child.
const proofVariable = "SLIPWAY_TEST_KVM"

func TestMain(m *testing.M) {
	switch os.Getenv(proofVariable) {
	case "run":
		if err := Run(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	case "hang":
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

func TestTheProofEndsInTimeWithAVerdict(t *testing.T) {
	t.Setenv(proofVariable, "run")
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	took, err := Prove(t.Context(), own)
	t.Logf("verdict after %s: %v", took, err)
	if over := time.Since(begun); over > Bound+time.Minute { // a busy machine may start the child late, and end it late
		t.Errorf("it took %s", over)
	}
	if _, statErr := os.Stat(Device); statErr != nil && err == nil {
		t.Errorf("there is no %s, yet it was proved", Device)
	}
}

func TestAGuestThatNeverEndsIsKilled(t *testing.T) {
	t.Setenv(proofVariable, "hang")
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Prove(t.Context(), own); err == nil || !strings.Contains(err.Error(), "does not run 64-bit guests") {
		t.Errorf("got %v", err)
	}
}
