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
	flagName            = "name"
	flagRunStrategy     = "run-strategy"
	flagGracePeriod     = "termination-grace-period"
	flagMemory          = "memory"
	flagInstancetype    = "instancetype"
	flagInferType       = "infer-instancetype"
	flagInferTypeFrom   = "infer-instancetype-from"
	flagPreference      = "preference"
	flagInferPref       = "infer-preference"
	flagInferPrefFrom   = "infer-preference-from"
	flagContainerDisk   = "volume-containerdisk"
	flagClaim           = "volume-pvc"
	flagImport          = "volume-import"
	flagSysprep         = "volume-sysprep"
	flagUser            = "user"
	flagPasswordFile    = "password-file"
	flagSSHKey          = "ssh-key"
	flagGAManageSSH     = "ga-manage-ssh"
	flagAccessCred      = "access-cred"
	flagCloudInit       = "cloud-init"
	flagUserData        = "cloud-init-user-data"
	flagNetworkData     = "cloud-init-network-data"
	flagDataSource      = "volume-datasource"
	flagCloneClaim      = "volume-clone-pvc"
	flagBlank           = "volume-blank"
	defaultGracePeriod  = 180
	defaultMemory       = "512Mi"
	sourceParams        = "name:string,src:string,bootorder:uint"
	importParams        = sourceParams + ",size:resource.Quantity"
	deprecatedForImport = "\nDEPRECATED: use --volume-import with type:%s and the same params instead."
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
	// Suffix returns the end of a generated name, another one at each call.
	Suffix func() string
	// ReadFile reads the file of --password-file.
	ReadFile func(path string) ([]byte, error)

	flags *pflag.FlagSet
}

// AddFlags adds the flags to set, which Options keeps: what was given and what is a default differ.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	o.flags = set
	set.StringVar(&o.Name, flagName, "", "Specify the name of the VM.")
	set.StringVar(&o.RunStrategy, flagRunStrategy, string(virtv1.RunStrategyAlways), "Specify the RunStrategy of the VM.")
	set.Int64Var(&o.TerminationGracePeriod, flagGracePeriod, defaultGracePeriod, "Specify the termination grace period of the VM.")

	set.StringVar(&o.Memory, flagMemory, defaultMemory, "Specify the memory of the VM.")
	set.StringVar(&o.Instancetype, flagInstancetype, "", "Specify the Instance Type of the VM. Mutually exclusive with instancetype inference flags.")
	set.BoolVar(&o.InferInstancetype, flagInferType, true, "Specify if the Instance Type of the VM should be inferred from the first boot disk. Mutually exclusive with --infer-instancetype-from.")
	set.StringVar(&o.InferInstancetypeFrom, flagInferTypeFrom, "", "Specify the volume to infer the Instance Type of the VM from. Mutually exclusive with --infer-instancetype.")
	set.StringVar(&o.Preference, flagPreference, "", "Specify the Preference of the VM. Mutually exclusive with preference inference flags.")
	set.BoolVar(&o.InferPreference, flagInferPref, true, "Specify if the Preference of the VM should be inferred from the first boot disk. Mutually exclusive with --infer-preference-from.")
	set.StringVar(&o.InferPreferenceFrom, flagInferPrefFrom, "", "Specify the volume to infer the Preference of the VM from. Mutually exclusive with --infer-preference.")

	o.addVolumeFlags(set)

	set.StringVar(&o.User, flagUser, "", "Specify the user in the cloud-init user data that is added to the VM.")
	set.StringVar(&o.PasswordFile, flagPasswordFile, "", "Specify a file to read the password from for the cloud-init user data that is added to the VM.")
	set.StringSliceVar(&o.SSHKeys, flagSSHKey, nil, "Specify one or more SSH authorized keys in the cloud-init user data that is added to the VM.")
	set.BoolVar(&o.GAManageSSH, flagGAManageSSH, false, "Specify if the qemu-guest-agent should be able to manage SSH in the cloud-init user data that is added to the VM.")
	set.StringArrayVar(&o.AccessCreds, flagAccessCred, nil, "Specify an access credential to be injected into the VM. Can be provided multiple times.\nSupported parameters: type:string,src:string,method:string,user:string")
	set.StringVar(&o.CloudInit, flagCloudInit, cloudInitNoCloud, "Specify the type of the generated cloud-init data source.\nSupported values: nocloud, configdrive, none")
	set.StringVar(&o.UserData, flagUserData, "", "Specify the base64 encoded cloud-init user data of the VM.")
	set.StringVar(&o.NetworkData, flagNetworkData, "", "Specify the base64 encoded cloud-init network data of the VM.")
}

func (o *Options) addVolumeFlags(set *pflag.FlagSet) {
	const many = " Can be provided multiple times.\nSupported parameters: "
	set.StringArrayVar(&o.ContainerDisks, flagContainerDisk, nil, "Specify a containerdisk to be used by the VM."+many+sourceParams)
	set.StringArrayVar(&o.Claims, flagClaim, nil, "Specify a PVC to be used by the VM."+many+sourceParams)
	set.StringArrayVar(&o.Imports, flagImport, nil, "Specify the source for DataVolume. Can be provided multiple times.\nSupported parameters:"+importUsage())
	set.StringVar(&o.Sysprep, flagSysprep, "", "Specify a ConfigMap or Secret to be used as sysprep volume by the VM.\nSupported parameters: src:string,type:string")
	set.StringArrayVar(&o.DataSources, flagDataSource, nil, "Specify a DataSource to be cloned by the VM."+many+importParams+fmt.Sprintf(deprecatedForImport, sourceDataSource))
	set.StringArrayVar(&o.ClonedClaims, flagCloneClaim, nil, "Specify a PVC to be cloned by the VM."+many+importParams+fmt.Sprintf(deprecatedForImport, sourceClaim))
	set.StringArrayVar(&o.Blanks, flagBlank, nil, "Specify a blank volume to be used by the VM."+many+"name:string,size:resource.Quantity"+fmt.Sprintf(deprecatedForImport, sourceBlank))
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
