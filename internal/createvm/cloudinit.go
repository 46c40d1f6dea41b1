package createvm

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/flagparams"
)

// Kinds of --cloud-init.
const (
	cloudInitNoCloud     = "nocloud"
	cloudInitConfigDrive = "configdrive"
	cloudInitNone        = "none"

	cloudInitDisk   = "cloudinitdisk"
	cloudInitHeader = "#cloud-config"
)

// cloudInit adds the disc with the user's data when one of its flags, or an access credential, asks for it.
func (b *builder) cloudInit() error {
	asked := b.changed(flagCloudInit) || b.cloudInitBy != ""
	if !asked && !b.GAManageSSH && !b.changed(flagUser, flagPasswordFile, flagSSHKey, flagGAManageSSH, flagUserData, flagNetworkData) {
		return nil
	}
	if b.changed(flagPasswordFile) {
		b.warnings = append(b.warnings, "--"+flagPasswordFile+": the password is stored in cleartext in the VM definition")
	}
	kind, err := b.cloudInitKind()
	if err != nil || kind == cloudInitNone {
		return err
	}
	config := ""
	if b.UserData == "" {
		if config, err = b.cloudConfig(); err != nil {
			return err
		}
		if config == cloudInitHeader && b.NetworkData == "" && !asked {
			return nil
		}
	}
	source := virtv1.VolumeSource{}
	if kind == cloudInitNoCloud {
		source.CloudInitNoCloud = &virtv1.CloudInitNoCloudSource{UserData: config, UserDataBase64: b.UserData, NetworkDataBase64: b.NetworkData}
	} else {
		source.CloudInitConfigDrive = &virtv1.CloudInitConfigDriveSource{UserData: config, UserDataBase64: b.UserData, NetworkDataBase64: b.NetworkData}
	}
	return b.addVolume(flagCloudInit, virtv1.Volume{Name: cloudInitDisk, VolumeSource: source}, nil)
}

// cloudInitKind returns the kind of data source, in lower case.
func (b *builder) cloudInitKind() (string, error) {
	kind := strings.ToLower(b.CloudInit)
	switch kind {
	case cloudInitNoCloud, cloudInitConfigDrive:
	case cloudInitNone:
		if b.changed(flagPasswordFile, flagSSHKey, flagGAManageSSH, flagUserData, flagNetworkData) {
			b.warnings = append(b.warnings, "--"+flagCloudInit+" is none: no data source is created although other cloud-init options were set")
		}
	default:
		return "", flagparams.Errorf(flagCloudInit, "invalid cloud-init data source type %q, supported values are: %s, %s, %s", b.CloudInit, cloudInitNoCloud, cloudInitConfigDrive, cloudInitNone)
	}
	return kind, nil
}

// cloudConfig writes the user data that the flags ask for.
func (b *builder) cloudConfig() (string, error) {
	lines := []string{cloudInitHeader}
	if b.User != "" {
		lines = append(lines, "user: "+scalar(b.User))
	}
	password, err := b.password()
	if err != nil {
		return "", err
	}
	if password != "" {
		lines = append(lines, "password: "+scalar(password), "chpasswd: { expire: False }")
	}
	if len(b.SSHKeys) > 0 {
		lines = append(lines, "ssh_authorized_keys:")
		for _, key := range b.SSHKeys {
			lines = append(lines, "  - "+scalar(key))
		}
	}
	if b.GAManageSSH {
		lines = append(lines, "runcmd:", "  - [ setsebool, -P, 'virt_qemu_ga_manage_ssh', 'on' ]")
	}
	return strings.Join(lines, "\n"), nil
}

func (b *builder) password() (string, error) {
	if b.PasswordFile == "" {
		return "", nil
	}
	data, err := b.ReadFile(b.PasswordFile)
	if err != nil {
		return "", flagparams.Errorf(flagPasswordFile, "%w", err)
	}
	password := strings.TrimSpace(string(data))
	if strings.ContainsAny(password, "\r\n") {
		return "", flagparams.Errorf(flagPasswordFile, "%s holds more than one line", b.PasswordFile)
	}
	return password, nil
}

// plain is text that YAML reads as the string that it is.
var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.+/=@-]*( [A-Za-z0-9_.+/=@-]+)*$`)

// scalar writes text as a YAML scalar, quoted when it could be read as something else.
func scalar(text string) string {
	switch strings.ToLower(text) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
	default:
		if plain.MatchString(text) {
			return text
		}
	}
	var quoted strings.Builder
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil { // a string always encodes
		return text
	}
	return strings.TrimSpace(quoted.String())
}

// accessCredentials adds the credentials that come from Secrets.
func (b *builder) accessCredentials() error {
	for _, text := range b.AccessCreds {
		p, err := flagparams.Read(flagAccessCred, text, "type", "src", "method", "user")
		if err != nil {
			return err
		}
		secret, err := p.LocalSource("secret")
		if err != nil {
			return err
		}
		var credential virtv1.AccessCredential
		switch strings.ToLower(p.Text("type")) {
		case "", "ssh":
			credential, err = b.sshCredential(p, secret)
		case "password":
			credential, err = passwordCredential(p, secret)
		default:
			err = p.Errorf("invalid access credential type %q, supported values are: ssh, password", p.Text("type"))
		}
		if err != nil {
			return err
		}
		b.spec().AccessCredentials = append(b.spec().AccessCredentials, credential)
	}
	return nil
}

// errUser says that the parameter user has no meaning for the credential.
var errUser = errors.New("user cannot be specified with selected access credential type and method")

func (b *builder) sshCredential(p *flagparams.Params, secret string) (virtv1.AccessCredential, error) {
	propagation := virtv1.SSHPublicKeyAccessCredentialPropagationMethod{}
	method := strings.ToLower(p.Text("method"))
	switch method {
	case "", "ga":
		user := p.Text("user")
		if user == "" {
			user = b.User
		}
		if user == "" {
			return virtv1.AccessCredential{}, p.Errorf("user must be specified with access credential ssh method ga (\"--user\" flag or param \"user\")")
		}
		if !b.changed(flagGAManageSSH) {
			b.GAManageSSH = true // so that the agent may write the keys
		}
		propagation.QemuGuestAgent = &virtv1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{Users: []string{user}}
	case cloudInitNoCloud, cloudInitConfigDrive:
		if p.Text("user") != "" {
			return virtv1.AccessCredential{}, p.Errorf("%w", errUser)
		}
		if !b.changed(flagCloudInit) && (b.cloudInitBy == "" || b.cloudInitBy == method) {
			b.CloudInit, b.cloudInitBy = method, method
		}
		if !strings.EqualFold(b.CloudInit, method) {
			return virtv1.AccessCredential{}, p.Errorf("method param and value passed to --%s have to match: %s vs %s", flagCloudInit, method, b.CloudInit)
		}
		if method == cloudInitNoCloud {
			propagation.NoCloud = &virtv1.NoCloudSSHPublicKeyAccessCredentialPropagation{}
		} else {
			propagation.ConfigDrive = &virtv1.ConfigDriveSSHPublicKeyAccessCredentialPropagation{}
		}
	default:
		return virtv1.AccessCredential{}, p.Errorf("invalid access credentials ssh method %q, supported values are: ga, %s, %s", p.Text("method"), cloudInitNoCloud, cloudInitConfigDrive)
	}
	return virtv1.AccessCredential{SSHPublicKey: &virtv1.SSHPublicKeyAccessCredential{
		Source:            virtv1.SSHPublicKeyAccessCredentialSource{Secret: &virtv1.AccessCredentialSecretSource{SecretName: secret}},
		PropagationMethod: propagation,
	}}, nil
}

func passwordCredential(p *flagparams.Params, secret string) (virtv1.AccessCredential, error) {
	switch {
	case p.Text("method") != "" && !strings.EqualFold(p.Text("method"), "ga"):
		return virtv1.AccessCredential{}, p.Errorf("invalid access credentials password method %q, supported values are: ga", p.Text("method"))
	case p.Text("user") != "":
		return virtv1.AccessCredential{}, p.Errorf("%w", errUser)
	}
	return virtv1.AccessCredential{UserPassword: &virtv1.UserPasswordAccessCredential{
		Source: virtv1.UserPasswordAccessCredentialSource{Secret: &virtv1.AccessCredentialSecretSource{SecretName: secret}},
		PropagationMethod: virtv1.UserPasswordAccessCredentialPropagationMethod{
			QemuGuestAgent: &virtv1.QemuGuestAgentUserPasswordAccessCredentialPropagation{},
		},
	}}, nil
}
