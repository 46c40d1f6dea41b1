// Package createvm builds a VirtualMachine from the flags of `virtctl create vm`: the
// same flags, defaults and messages, without a cluster. The task create-vm-from-manifest
// and virtctl share it.
package createvm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	virtv1 "kubevirt.io/api/core/v1"
)

// Names of the flags.
const (
	flagName           = "name"
	flagRunStrategy    = "run-strategy"
	flagGracePeriod    = "termination-grace-period"
	flagMemory         = "memory"
	flagInstancetype   = "instancetype"
	flagInferType      = "infer-instancetype"
	flagInferTypeFrom  = "infer-instancetype-from"
	flagPreference     = "preference"
	flagInferPref      = "infer-preference"
	flagInferPrefFrom  = "infer-preference-from"
	flagContainerDisk  = "volume-containerdisk"
	flagClaim          = "volume-pvc"
	flagImport         = "volume-import"
	flagSysprep        = "volume-sysprep"
	flagUser           = "user"
	flagPasswordFile   = "password-file"
	flagSSHKey         = "ssh-key"
	flagGAManageSSH    = "ga-manage-ssh"
	flagAccessCred     = "access-cred"
	flagCloudInit      = "cloud-init"
	flagUserData       = "cloud-init-user-data"
	flagNetworkData    = "cloud-init-network-data"
	flagDataSource     = "volume-datasource"
	flagCloneClaim     = "volume-clone-pvc"
	flagBlank          = "volume-blank"
	defaultGracePeriod = 180
	defaultMemory      = "512Mi"
)

// Options are the values of the flags.
type Options struct {
	Name, RunStrategy      string
	TerminationGracePeriod int64

	Memory, Instancetype, InferInstancetypeFrom string
	InferInstancetype                           bool
	Preference, InferPreferenceFrom             string
	InferPreference                             bool

	// Volumes, each of the form name:value,name:value.
	ContainerDisks, Claims, DataSources, ClonedClaims, Blanks, Imports []string
	Sysprep                                                            string

	User, PasswordFile    string
	SSHKeys, AccessCreds  []string
	GAManageSSH           bool
	CloudInit             string
	UserData, NetworkData string // in base64
	// Suffix returns the end of a generated name, another one at each call; random when nil.
	Suffix func() string
	// ReadFile reads the file of --password-file; os.ReadFile when nil.
	ReadFile func(path string) ([]byte, error)

	flags *pflag.FlagSet
}

// AddFlags adds the flags to set, which Options keeps: what was given and what is a default differ.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	o.flags = set
	set.StringVar(&o.Name, flagName, "", "Name of the VM; a random one when left out.")
	set.StringVar(&o.RunStrategy, flagRunStrategy, string(virtv1.RunStrategyAlways), "How the VM runs: Always, Manual, Halted, Once or RerunOnFailure.")
	set.Int64Var(&o.TerminationGracePeriod, flagGracePeriod, defaultGracePeriod, "Seconds that the guest has to shut down.")

	set.StringVar(&o.Memory, flagMemory, defaultMemory, "Memory of the guest.")
	set.StringVar(&o.Instancetype, flagInstancetype, "", "Instance type: NAME, or virtualmachineinstancetype/NAME for one of the namespace. Not with --memory or inference.")
	set.BoolVar(&o.InferInstancetype, flagInferType, true, "Take the instance type from the volume that boots first. When the flag is given, a volume without one is an error.")
	set.StringVar(&o.InferInstancetypeFrom, flagInferTypeFrom, "", "Take the instance type from this volume.")
	set.StringVar(&o.Preference, flagPreference, "", "Preference: NAME, or virtualmachinepreference/NAME for one of the namespace. Not with inference.")
	set.BoolVar(&o.InferPreference, flagInferPref, true, "Take the preference from the volume that boots first. When the flag is given, a volume without one is an error.")
	set.StringVar(&o.InferPreferenceFrom, flagInferPrefFrom, "", "Take the preference from this volume.")

	o.addVolumeFlags(set)

	set.StringVar(&o.User, flagUser, "", "User that cloud-init sets up.")
	set.StringVar(&o.PasswordFile, flagPasswordFile, "", "File with the user's password, which then stands in clear text in the VM.")
	set.StringSliceVar(&o.SSHKeys, flagSSHKey, nil, "Public SSH key that may log in as the user. May be given several times.")
	set.BoolVar(&o.GAManageSSH, flagGAManageSSH, false, "Let the guest agent manage SSH keys where SELinux would forbid it.")
	set.StringArrayVar(&o.AccessCreds, flagAccessCred, nil, "Credential from a Secret, by src:SECRET; type: ssh or password; method: ga, nocloud or configdrive; user. May be given several times.")
	set.StringVar(&o.CloudInit, flagCloudInit, cloudInitNoCloud, "Kind of cloud-init disc: nocloud, configdrive or none.")
	set.StringVar(&o.UserData, flagUserData, "", "User data of cloud-init in base64, instead of what the other flags would make.")
	set.StringVar(&o.NetworkData, flagNetworkData, "", "Network data of cloud-init in base64.")
}

func (o *Options) addVolumeFlags(set *pflag.FlagSet) {
	set.StringArrayVar(&o.ContainerDisks, flagContainerDisk, nil, "Disk from a container image, by src:IMAGE; name; bootorder."+many)
	set.StringArrayVar(&o.Claims, flagClaim, nil, "Disk on a PersistentVolumeClaim, by src:CLAIM; name; bootorder."+many)
	set.StringArrayVar(&o.Imports, flagImport, nil, "Disk that a DataVolume fills, by type, and name, size, bootorder."+many+" The types, with what they take besides:"+importUsage())
	set.StringVar(&o.Sysprep, flagSysprep, "", "Answer file of Windows from a ConfigMap, by src:NAME, or a Secret, with type:secret.")
	set.StringArrayVar(&o.DataSources, flagDataSource, nil, deprecated(sourceDataSource))
	set.StringArrayVar(&o.ClonedClaims, flagCloneClaim, nil, deprecated(sourceClaim))
	set.StringArrayVar(&o.Blanks, flagBlank, nil, deprecated(sourceBlank))
}

// many is said of flags that may be repeated.
const many = " May be given several times."

func deprecated(kind string) string {
	return "Deprecated: --" + flagImport + " with type:" + kind + " and the same params says it."
}

// Flag describes a flag for the docs.
type Flag struct{ Name, Type, Usage string }

// Flags returns every flag, in the order in which the help of virtctl has them.
func Flags() []Flag {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.SortFlags = false
	(&Options{}).AddFlags(set)
	var all []Flag
	set.VisitAll(func(f *pflag.Flag) {
		all = append(all, Flag{Name: "--" + f.Name, Type: f.Value.Type(), Usage: f.Usage})
	})
	return all
}

// Parse reads the flags from a line such as "--name web --memory 1Gi", with the quotes of a shell.
func (o *Options) Parse(line string) error {
	words, err := Words(line)
	if err != nil {
		return err
	}
	set := pflag.NewFlagSet("create vm", pflag.ContinueOnError)
	set.Usage = func() {}
	o.AddFlags(set)
	if err := set.Parse(words); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return errors.New("--help has no meaning here; the flags are those of virtctl create vm")
		}
		return err //nolint:wrapcheck // pflag names the flag
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%q is no flag; only flags of virtctl create vm may stand here, and a value with spaces needs quotes", set.Arg(0))
	}
	return nil
}

// changed says whether one of the flags was given.
func (o *Options) changed(flags ...string) bool {
	return slices.ContainsFunc(flags, o.flags.Changed)
}

// exclusive are the flags of which only one may be given.
var exclusive = [][]string{
	{flagMemory, flagInstancetype, flagInferType, flagInferTypeFrom},
	{flagPreference, flagInferPref, flagInferPrefFrom},
	{flagUserData, flagUser},
	{flagUserData, flagPasswordFile},
	{flagUserData, flagSSHKey},
	{flagUserData, flagGAManageSSH},
}

func (o *Options) checkExclusive() error {
	for _, group := range exclusive {
		var given []string
		for _, flag := range group {
			if o.changed(flag) {
				given = append(given, flag)
			}
		}
		if len(given) > 1 {
			return fmt.Errorf("if any flags in the group [%s] are set none of the others can be; [%s] were all set", strings.Join(group, " "), strings.Join(given, " "))
		}
	}
	return nil
}
