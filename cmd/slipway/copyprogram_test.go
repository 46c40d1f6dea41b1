package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestTheProgramIsCopied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slipway")
	for range 2 { // a container may start again
		if err := copyProgram(path); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the copy is another program")
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o555 != 0o555 {
		t.Errorf("its mode is %v; everybody is to run it", info.Mode())
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("beside it is left %v (%v)", left, err)
	}
	if err := copyProgram(filepath.Join(path, "below-a-file")); err == nil {
		t.Error("a place that cannot be is no error")
	}
}
