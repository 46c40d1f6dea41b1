package guestagent

import (
	"context"
	"encoding/base64"
	"fmt"
)

// SetAuthorizedKeys makes keys the content of user's authorized_keys file in the guest, in
// place of all that was in it.
func SetAuthorizedKeys(ctx context.Context, channel Channel, user string, keys []string) error {
	arguments := map[string]any{"username": user, "keys": append([]string{}, keys...), "reset": true}
	var nothing struct{}
	if err := call(ctx, channel, "guest-ssh-add-authorized-keys", arguments, &nothing); err != nil {
		return fmt.Errorf("setting the SSH keys of user %s: %w", user, err)
	}
	return nil
}

// SetPassword sets a user's password in the guest.
func SetPassword(ctx context.Context, channel Channel, user, password string) error {
	arguments := map[string]any{"username": user, "password": base64.StdEncoding.EncodeToString([]byte(password)), "crypted": false}
	var nothing struct{}
	if err := call(ctx, channel, "guest-set-user-password", arguments, &nothing); err != nil {
		return fmt.Errorf("setting the password of user %s: %w", user, err)
	}
	return nil
}
