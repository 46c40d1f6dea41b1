package diskuploader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/disk-uploader/registry"
)

// options are the parameters, checked.
type options struct {
	kind, source, volume string
	destination          *registry.Repository
	timeout              time.Duration
}

// Kinds of sources.
const (
	kindVM       = "vm"
	kindClaim    = "pvc"
	kindSnapshot = "vmsnapshot"
)

// read reads the parameters and the Secret's files in folder.
func read(call *declare.Call, folder string) (options, error) {
	value := func(name string) string { return strings.TrimSpace(call.String(name)) }
	for _, name := range []string{paramKind, paramSource, paramVolume, paramDestination} {
		if value(name) == "" {
			return options{}, fmt.Errorf("%s param has to be specified", strings.ToLower(strings.ReplaceAll(name, "_", "-")))
		}
	}
	o := options{kind: value(paramKind), source: value(paramSource), volume: value(paramVolume)}
	switch o.kind {
	case kindVM:
	case kindClaim:
		if o.source != o.volume {
			return options{}, fmt.Errorf("%s: %q is not %s, and a PersistentVolumeClaim has no other volume: give its name in both", paramVolume, o.volume, o.source)
		}
	case kindSnapshot:
		return options{}, fmt.Errorf("%s: there are no VirtualMachineSnapshots in Slipway yet: clone the disk to a PersistentVolumeClaim and upload that as kind pvc", paramKind)
	default:
		return options{}, fmt.Errorf("%s: %q is neither vm nor pvc", paramKind, o.kind)
	}
	minutes, err := strconv.Atoi(value(paramTimeout))
	if err != nil || minutes <= 0 {
		return options{}, fmt.Errorf("%s: %q is no number of minutes above zero", paramTimeout, value(paramTimeout))
	}
	o.timeout = time.Duration(minutes) * time.Minute
	plain, err := call.Bool(paramPlain)
	if err != nil {
		return options{}, err
	}
	access, err := readSecret(folder, value(paramSecret))
	if err != nil {
		return options{}, err
	}
	access.PlainHTTP = plain
	if o.destination, err = registry.Parse(value(paramDestination), access, call.Log); err != nil {
		return options{}, fmt.Errorf("%s: %w", paramDestination, err)
	}
	return o, nil
}

// readSecret reads the credentials, and the authority if there is one.
func readSecret(folder, name string) (registry.Options, error) {
	key := func(file string) (string, error) {
		data, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("%s: reading %s of Secret %s: %w", paramSecret, file, name, err)
		}
		return strings.TrimSpace(string(data)), nil
	}
	var access registry.Options
	for file, to := range map[string]*string{"accessKeyId": &access.User, "secretKey": &access.Password} {
		value, err := key(file)
		if err != nil {
			return access, err
		}
		if value == "" {
			return access, fmt.Errorf("%s: Secret %s does not exist or has no key %s: make it with the keys accessKeyId and secretKey", paramSecret, name, file)
		}
		*to = value
	}
	authority, err := key("ca.crt")
	access.Authorities = []byte(authority)
	return access, err
}
