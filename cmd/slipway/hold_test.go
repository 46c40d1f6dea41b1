package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatHoldsAClaimStaysUntilAnotherHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		command := newHoldCommand()
		command.SetArgs([]string{})
		ended := make(chan error, 1)
		go func() { ended <- command.ExecuteContext(ctx) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ends before it is told to: %v", err)
		default:
		}
		told := time.Now()
		end()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if stayed := time.Since(told); stayed < 10*time.Second || stayed >= 15*time.Second { // what its pod is given
			t.Errorf("it stayed %s", stayed)
		}
	})
}
