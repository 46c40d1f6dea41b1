package adm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
)

const (
	// shown is a component's flag without a level.
	shown = "show"
	// all is the flag for all components, and what --reset resets that names no VM.
	all      = "all"
	maxLevel = 9
)

// component is a program of the installation whose level can be set.
type component struct {
	// flag is its name, field that in logVerbosity.
	flag, field string
}

var components = []component{
	{"virt-api", "virtAPI"}, {"virt-controller", "virtController"}, {"virt-handler", "virtHandler"},
	{"virt-launcher", "virtLauncher"}, {"virt-operator", "virtOperator"},
}

// options are the flags.
type options struct {
	levels   map[string]*string // by flag; shown, a level, or empty for none
	reset    []string
	machines []string
	given    []string // the machines' levels, in their order
}

func newLogVerbosity(cluster Cluster) *cobra.Command {
	o := &options{levels: map[string]*string{all: new(string)}}
	command := &cobra.Command{
		Use:   "log-verbosity",
		Short: "Shows, sets or resets how much components and VMs log",
		Long: `Shows, sets or resets how much the components of the installation and the launchers of VMs log. Levels are 0 to 9; 0 is the same
as none, the default. A flag with a level has "=" between the two: --virt-api=4. Showing cannot be together with setting or resetting.

Components follow at once, while they run. A VM's level is a label of its template; it counts from its next start on, and comes before
that of virt-launcher, which counts for VMs that are started from then on.`,
		Example: `  # Show it of all components, or of one and of the VM "web":
  virtctl adm log-verbosity --all
  virtctl adm log-verbosity --virt-handler --vm=web

  # Set it for all components but one:
  virtctl adm log-verbosity --all=3 --virt-handler=7

  # Set it for VMs:
  virtctl adm log-verbosity --vm=web --level=5 --vm=db --level=6

  # Back to the default, of the components and of the VM "web":
  virtctl adm log-verbosity --reset --reset=web`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, cluster) },
	}
	flags := command.Flags()
	level := func(name, of string) {
		o.levels[name] = new(string)
		flags.StringVar(o.levels[name], name, "", "show, or with a level from 0 to 9 set, how much "+of+" logs")
		flags.Lookup(name).NoOptDefVal = shown
	}
	for _, c := range components {
		level(c.flag, c.flag)
	}
	level(all, "every component")
	flags.StringSliceVar(&o.reset, "reset", nil, "back to the default: of all components, or of the VM that is named")
	flags.Lookup("reset").NoOptDefVal = all
	flags.StringSliceVar(&o.machines, "vm", nil, "name of a VM")
	flags.StringSliceVar(&o.given, "level", nil, "how much the VM is to log, 0 to 9")
	return command
}

func (o *options) run(cmd *cobra.Command, cluster Cluster) error {
	if err := o.validate(); err != nil {
		return err
	}
	c, err := cluster.Client()
	if err != nil {
		return err
	}
	installation, err := findInstallation(cmd.Context(), c)
	if err != nil {
		return err
	}
	namespace, err := cluster.Namespace()
	if err != nil {
		return err
	}
	vms := machines{client: c, namespace: namespace, installation: installation}
	if o.shows() {
		for _, one := range components {
			if *o.levels[one.flag] == shown || *o.levels[all] == shown {
				fmt.Fprintf(cmd.OutOrStdout(), "%s = %d\n", one.flag, installation.level(one))
			}
		}
		return vms.show(cmd, o.machines)
	}
	if err := o.change(cmd, installation); err != nil {
		return err
	}
	for _, name := range o.reset {
		if name == all {
			continue
		}
		if err := vms.reset(cmd, name); err != nil {
			return err
		}
	}
	for i, name := range o.machines {
		if err := vms.set(cmd, name, o.given[i]); err != nil {
			return err
		}
	}
	return nil
}

// shows says whether levels are asked for; if not, some are to be set.
func (o *options) shows() bool {
	for _, level := range o.levels {
		if *level == shown {
			return true
		}
	}
	return len(o.machines) > 0 && len(o.given) == 0
}

// sets says whether there is a level to set or to reset.
func (o *options) sets() bool {
	for _, level := range o.levels {
		if *level != "" && *level != shown {
			return true
		}
	}
	return len(o.reset) > 0 || len(o.given) > 0
}

func (o *options) validate() error {
	for name, level := range o.levels {
		if *level != "" && *level != shown && !isLevel(*level) {
			return fmt.Errorf("%s: log verbosity must be 0-%d", name, maxLevel)
		}
	}
	switch {
	case len(o.given) > 0 && len(o.machines) == 0:
		return errors.New("level: need vm flag")
	case len(o.given) > 0 && len(o.given) != len(o.machines):
		return fmt.Errorf("number of vm flags %d not equal to number of level flags %d", len(o.machines), len(o.given))
	case !o.shows() && !o.sets():
		return errors.New("no flag specified - expecting at least one flag")
	case o.shows() && o.sets():
		return errors.New("only show or set is allowed")
	}
	for i, level := range o.given {
		if !isLevel(level) {
			return fmt.Errorf("%s: log verbosity must be 0-%d", o.machines[i], maxLevel)
		}
	}
	return nil
}

func isLevel(text string) bool {
	level, err := strconv.Atoi(text)
	return err == nil && level >= 0 && level <= maxLevel
}

// change writes what is to change of components, at once. A component's own flag comes before that for all.
func (o *options) change(cmd *cobra.Command, installation *installation) error {
	levels := map[string]any{}
	resets := slices.Contains(o.reset, all)
	for _, c := range components {
		text := *o.levels[c.flag]
		if text == "" {
			text = *o.levels[all]
		}
		switch {
		case text != "":
			level, err := strconv.Atoi(text)
			if err != nil {
				return fmt.Errorf("reading --%s: %w", c.flag, err)
			}
			levels[c.field] = level
		case resets:
			levels[c.field] = nil
		}
	}
	if len(levels) == 0 {
		return nil
	}
	if err := installation.patch(cmd.Context(), levels); err != nil {
		return err
	}
	if resets {
		fmt.Fprintln(cmd.OutOrStdout(), "successfully reset the verbosity of all KubeVirt components to default")
	}
	if *o.levels[all] != "" || slices.ContainsFunc(components, func(c component) bool { return *o.levels[c.flag] != "" }) {
		fmt.Fprintln(cmd.OutOrStdout(), "successfully set the verbosity of the KubeVirt component(s)")
	}
	return nil
}
