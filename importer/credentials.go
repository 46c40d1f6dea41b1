package importer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// authenticate reads the credentials from their mount, in the way of the URL's server.
func (o PodOptions) authenticate(from *source.Options) (err error) {
	switch o.Server {
	case "", transfer.SourceHTTP:
		from.Username, from.Password, err = o.login()
		return err
	case transfer.SourceS3:
		return o.authenticateS3(from)
	case transfer.SourceGCS:
		return o.authenticateGCS(from)
	}
	return transfer.Errorf(transfer.BadRequest, "--source %q is not known; use %s, %s or %s", o.Server, transfer.SourceHTTP, transfer.SourceS3, transfer.SourceGCS)
}

// login is a user and a password, which are empty where none are mounted.
func (o PodOptions) login() (username, password string, err error) {
	if o.CredentialsDir == "" {
		return "", "", nil
	}
	if username, err = o.credential("accessKeyId"); err != nil {
		return "", "", err
	}
	password, err = o.credential("secretKey")
	return username, password, err
}

func (o PodOptions) authenticateS3(from *source.Options) error {
	if o.CredentialsDir == "" {
		return nil // a public bucket
	}
	var words [3]string
	for n, name := range []string{"accessKeyId", "secretKey", "sessionToken"} {
		word, err := o.credential(name)
		if err != nil && (name != "sessionToken" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
		words[n] = strings.TrimSpace(word)
	}
	signer, err := source.NewS3(from.URL, words[0], words[1], words[2])
	if err != nil {
		return err //nolint:wrapcheck // it says what is wrong with which
	}
	from.Signer = signer
	return nil
}

func (o PodOptions) authenticateGCS(from *source.Options) (err error) {
	if from.URL, err = source.GCSAddress(from.URL); err != nil || o.CredentialsDir == "" {
		return err //nolint:wrapcheck // it says what is wrong
	}
	key, err := o.credential("credentials.json")
	if err != nil {
		return err
	}
	signer, err := source.NewGCS([]byte(key), from.ProxyCertDir)
	if err != nil {
		return err //nolint:wrapcheck // it says what is wrong with which
	}
	from.Signer = signer
	return nil
}

// credential reads one key of the Secret.
func (o PodOptions) credential(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(o.CredentialsDir, name))
	if err != nil {
		return "", transfer.Errorf(transfer.BadRequest, "the Secret of secretRef has no %s: %w", name, err)
	}
	return string(data), nil
}
