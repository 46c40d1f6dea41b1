// Package guestagent speaks to the QEMU guest agent in a guest: what runs there, its
// addresses, and commands. It knows the agent's messages, not how they travel.
package guestagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Channel carries one command to the agent and its answer back, both JSON. It gives
// up when ctx is done, or earlier with an error that is a timeout.
type Channel interface {
	AgentCommand(ctx context.Context, command string) (string, error)
}

// errRefused is the agent's own word that it does not do what it is asked for.
var errRefused = errors.New("the guest agent refused")

// answered says whether the agent answered, were it by a refusal.
func answered(err error) bool { return err == nil || errors.Is(err, errRefused) }

// late says whether the agent left a command without an answer for as long as the channel waited: it may have got it, and may
// answer the next one.
func late(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// command is the form of every request.
type command struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
}

// call sends a command and decodes its result into out.
func call(ctx context.Context, channel Channel, name string, arguments, out any) error {
	request, err := json.Marshal(command{Execute: name, Arguments: arguments})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	answer, err := channel.AgentCommand(ctx, string(request))
	if err != nil {
		return fmt.Errorf("asking the guest agent for %s: %w", name, err)
	}
	var reply struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Description string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(answer), &reply); err != nil {
		return fmt.Errorf("decoding the guest agent's answer to %s: %w", name, err)
	}
	if reply.Error != nil {
		return fmt.Errorf("%w %s: %s", errRefused, name, reply.Error.Description)
	}
	if err := json.Unmarshal(reply.Return, out); err != nil {
		return fmt.Errorf("decoding the guest agent's answer to %s: %w", name, err)
	}
	return nil
}
