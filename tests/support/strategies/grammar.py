"""Every form of Hydra's override grammar, applied to the configuration that `tests/fast/test_compose.py` writes.

A line is a job; its overrides are separated by " & ".
"""

FILES = {
    "config.yaml": """
defaults:
  - policy: lor
  - hardware/gpu: small
  - cache: ${policy}_cache
  - optional extra: ${hardware/gpu}
  - _self_
gpus: 8
rps: 64
nothing: null
twice: ${eval_free}
eval_free: ${rps}
which: ${hydra.runtime.choices.policy}
list: [1, 2, 3]
tree:
  a: {b: 1, c: [x, y]}
  d: ${gpus}
required: ???
""",
    "policy/lor.yaml": "_target_: a.B\nseed: null\n",
    "policy/random.yaml": "_target_: a.C\nseed: 3\nof: ${gpus}\n",
    "cache/nested_cache.yaml": "size: 3\n",
    "policy/nested.yaml": "defaults:\n  - lor\n  - _self_\ndepth: {x: 1}\n",
    "cache/lor_cache.yaml": "size: 1\n",
    "cache/random_cache.yaml": "size: 2\npolicy_seed: ${policy.seed}\n",
    "hardware/gpu/small.yaml": "kv: 1000\nname: small\n",
    "hardware/gpu/large.yaml": "kv: 9000\nname: ${hydra.runtime.choices.extra}\n",
    "extra/large.yaml": "# @package _global_\nsurprise: ${rps}\n",
    "sweeps/one.yaml": "# @package _global_\nrps: 7\nhydra: {mode: MULTIRUN}\n",
}

VALID = r"""
gpus=${hydra:overrides.task}
gpus=${hydra.job.num}
gpus=4
gpus=4 & gpus=5
rps=2.5 & policy=random
policy=random & policy.seed=9 & policy.of=1
policy.seed=9 & policy=random
policy=nested & policy.depth.x=2
+policy@other=random
+policy@other=random & other.seed=5
+policy@tree.a=lor & +tree.a.more=1
hardware/gpu=large & rps=1e3
hardware.gpu.kv=2000
~cache
~list
~tree.a.b
~tree.a.b=1
+new=1
+new.deep.er=[1,2,{a: 3}]
++gpus=3 & ++fresh=4
+sweeps=one
rps=9 & +sweeps=one
tree={a: {b: 7}}
+tree={z: 1}
policy={seed: 4}
list=[4]
list.0=9
list=[]
gpus=${rps}
twice='a b, c'
twice=${policy.seed} & policy=random
which=${hydra.runtime.choices.cache}
nothing=true & gpus=null & rps=nan
nothing=int(3.7) & twice=str([1, 2])
hydra.job.name=x & hydra.verbose=true
hydra/job_logging=none
cache=random_cache
gpus=
gpus=null
gpus=NULL
gpus=True
gpus=-7
gpus=+7
gpus=1_000
gpus=007
gpus=1e3
gpus=-.5e-3
gpus=1.
gpus=inf
gpus=-Inf
gpus=NaN
gpus=abc
gpus=a-b_c
gpus=a/b.c:d@e%f*g?h|i+j
gpus=a b c
gpus= padded
gpus='  quoted  '
gpus="double"
gpus='it\'s'
gpus="say \"x\""
gpus='back\\slash\\'
gpus='a\b'
gpus='1'
gpus='null'
gpus='true'
gpus='[1,2]'
gpus=a\,b
gpus=a\=b
gpus=\(a\)\[b\]\{c\}
gpus=a\:b
gpus=\\
gpus=''
gpus=""
gpus='${rps}'
gpus="${rps}"
gpus='\${rps}'
gpus=\${rps}
gpus=${rps}0
gpus=${rps}${eval_free}
gpus=pre_${rps}_post
gpus=${.rps}
tree.a.b=${.c}
tree.a.b=${..d}
tree.a.b=${...rps}
tree.a.b=${tree.a.c[0]}
tree.a.b=${tree.a.c.1}
gpus=${list}
gpus=${tree.a}
gpus=${oc.env:HOME}
gpus=${oc.env:NO_SUCH_VARIABLE,7}
gpus=${oc.select:missing,5}
gpus=${oc.decode:'[1,2]'}
gpus=${oc.dict.keys:tree}
gpus=${hydra.mode}
gpus=${python_version:major}
gpus=${required}
gpus=${policy}
gpus=${policy._target_}
gpus=[]
gpus={}
gpus=[1,2,[3,{a:b}]]
gpus=[1 2]
gpus=[a, 'b, c', "d"]
gpus={a:1,b:{c:[1]}}
gpus={a:1,a:2}
gpus={a:${rps}}
gpus=[${rps},${.0}]
gpus=[1,${.0}]
tree={a:{b:5}}
tree={a:5}
tree=5
tree=null
tree.a=null
tree.a={b:{deep:1}}
tree.a.b={x:1}
tree.a.c=[z]
+tree.a.c=[z]
++tree.a.c=[z]
tree.a.c.0=Z
list.0=null
list.1={a:1}
list=5
+list=[4]
++list=[4]
+gpus.x=1
++gpus.x=1
++gpus.x.y=1
+nothing=5
++nothing={a:1}
+new=[1]
+new={a:1,b:{c:2}}
+new=
+new='a b'
+new.a.b=1 & +new.a.c=2
+new=1 & ++new=2
+new=1 & new=3
+new=1 & ~new
+new={a:1} & +new={b:2}
+new={a:1} & +new.b=2
+new=null & +new=5
~tree
~tree.a
~tree.a.c
~tree.a.c=[x,y]
~tree={a:{b:1,c:[x,y]},d:${gpus}}
~list=[1,2,3]
~required
~gpus & +gpus=3
~twice
~twice=64
~cache & ~cache
~cache=lor_cache
~cache & cache=lor_cache
~extra
policy='lor'
policy="lor"
policy=./lor
policy=nested & policy=lor
policy=lor & policy=random
policy={_target_:x}
policy={seed:4} & policy=random
+policy@new=random
+policy@new.deep=random
+policy@_global_=random
+policy@_here_=random
+policy@tree=random
+policy@a=random & +policy@b=lor
+policy@a=random & ~policy@a
+policy@a=random & ~policy@a=random
+policy@a=random & policy@a=lor
+policy@a=random & a.seed=5
+policy@a=[random,lor]
+policy@a=nested
+hardware/gpu@big=large
hardware/gpu=large
hardware.gpu=large
extra=large
+sweeps=[one]
+sweeps@x=one
+policy/deep=x
+nogroup/x=y
hydra.job.name=x
hydra.job.chdir=true
+hydra.job.env_set.A=b
hydra.job.env_copy=[HOME]
hydra.verbose=[a,b]
hydra.verbose=3
hydra.verbose={a:1}
hydra.mode=RUN
hydra.sweep.dir=${gpus}
hydra.sweep.subdir='${hydra.job.num}'
hydra.sweeper.max_batch_size=3
hydra.launcher={}
hydra={job:{name:z}}
+hydra.new=1
++hydra.new=1
hydra/launcher=basic
hydra/launcher=prebleexp & hydra/sweeper=prebleexp
hydra/help=default
+hydra/nope=x
hydra.searchpath=[]
hydra.runtime.cwd=here & which=${hydra.runtime.cwd}
hydra.job.name=x & which=${hydra.job.name}
which=${hydra.overrides.hydra} & hydra.verbose=true
gpus=int(3.2)
gpus=int('3')
gpus=float(3)
gpus=float(inf)
gpus=str(3)
gpus=str([1,a])
gpus=str({a:1})
gpus=bool(1)
gpus=bool(false)
gpus=bool('True')
gpus=int([1,2.5,'3'])
gpus=float({a:1,b:'2'})
gpus=str(value=3)
gpus=sort([3,1,2])
gpus=sort([3,1,2],reverse=true)
gpus=shuffle([3])
gpus='1,2'
gpus=1\,2
gpus='ünïcödé'
gpus= 3
+$a=3
+a-b=3
+a.b-c=3
+_x=3
+a/b=3
+a.1=2
+a.1.b=2
+tree.0=1
required=5
policy.seed=null
policy.seed=[1]
policy.seed={a:1}
policy.seed=${gpus}
+policy.new=1
++policy.new=1
~policy._target_
policy._target_=x.Y
cache=random_cache & policy=random
cache=random_cache & policy.seed=3
cache=${policy}_cache
gpus=${hydra:job.name}
gpus=${hydra:runtime.choices.policy}
gpus=${hydra:mode}
"""

WRONG = r"""
policy@other=random
~hardware/gpu
~policy
~nothing
gpu=4
policy=lro
policy=5
policy.foo=1
tree.a.b.c=1
+gpus=3
~gpus=9
~missing
~policy=random
gpus=1,2
gpus=range(1,4)
gpus=interval(1,4)
policy=glob(*)
gpus=[
gpus='
gpus
=4
sweeps=one
++sweeps=one
+sweeps=two
+policy=random
gpus@there=4
hydra.nonsense=1
hydra/launcher=nonsense
gpus=${missing.key}
gpus=${gpus}
gpus=${unknown_resolver:1}
required=???
list.9=1
gpus=a\ & b
gpus=${..rps}
gpus=${tree}
gpus=${oc.env:NO_SUCH_VARIABLE}
gpus=${oc.env:NO_SUCH_VARIABLE,${rps}}
gpus=${hydra.job.override_dirname}
gpus=${hydra.overrides.task}
gpus=${now:}
gpus=${tree.nope}
gpus=${
gpus=${}
gpus=???
gpus='???'
gpus=[1,,2]
gpus={a: 1, 'b': 2}
gpus={1:a,true:b,null:c,1.5:d}
gpus={a}
gpus={${rps}:1}
gpus={a:???}
tree={new:1}
tree=[1]
tree.a.c={x:1}
tree.a.c[0]=Z
tree[a][b]=3
tree[a].b=3
tree.a.c.-1=Z
tree.a.c.2=Z
tree.a.c.x=Z
list.0.1=5
~list.0
~list.9
~tree.a.c.1
list={a:1}
+list=5
++list.5=1
+list.5=1
++list={a:1}
extend_list(1)
list=extend_list(4,5)
+list=extend_list(4)
list.a=1
gpus.x=1
+gpus=null
+required=7
+new
++new
+new=1 & +new=2
new=3 & +new=1
~gpus
~gpus=8
~gpus=
~gpus=null
~nothing=null
~tree=1
~gpus & ~gpus
~gpus & gpus=3
~gpus & rps=3
~which
~eval_free
~tree.zzz
~zzz.yyy
~policy.seed
~policy=lor
~policy=lor & ~policy
~policy=random & policy=random
~policy=3
~hardware/gpu=small
~sweeps
+policy=lor
+cache=lor_cache
++cache=lor_cache
++policy=lor
policy=null
policy=
policy=[lor]
policy=[lor,random]
policy=[]
policy=[5]
policy=true
policy=3.5
policy=lor.yaml
policy={a:1}
policy=${gpus}
policy=${cache}
policy@policy=random
policy@=random
policy@_global_=random
policy@x:y=random
policy@policy:new=random
policy@:new=random
+policy@_group_=random
+policy@a=random & ~policy@a=lor
+policy@a=random & +policy@a=lor
+policy@a=random & +policy@a=random
hardware/gpu@hardware.gpu=large
hardware/gpu=none
hardware=gpu
hardware/gpu/x=large
hardware/=x
/policy=random
+extra=large
extra=null
nogroup@x=y
+gpus@x=y
~gpus@x
gpus@=3
hydra.job.env_set.A=b
hydra.job.env_copy=[NO_SUCH_VARIABLE]
hydra.mode=multirun
hydra.mode=x
hydra.sweeper.params={gpus:'1,2'}
+hydra.sweeper.params.gpus='1,2'
hydra=x
~hydra.verbose
~hydra
hydra/output=x
hydra.searchpath=x
hydra.searchpath=[1]
hydra.searchpath=null
hydra.searchpath=x & gpus=1,2
hydra.runtime.choices.policy=zzz
hydra.job.override_dirname=x & which=${hydra.job.override_dirname}
hydra.job.config.override_dirname.kv_sep=_ & which=${hydra.job.override_dirname} & gpus=3
hydra.job.config.override_dirname.exclude_keys=[gpus] & which=${hydra.job.override_dirname} & gpus=3
gpus=int(x)
gpus=str(null)
gpus=bool(yes)
gpus=int(null)
gpus=int(1,2)
gpus=int(choice(1,2))
gpus=int()
gpus=nofunc(3)
gpus=sort(3,1,2)
gpus=sort([b,1])
gpus=shuffle(3,1,2)
gpus=choice(1,2)
gpus=choice(1)
gpus=choice()
gpus=range(3)
gpus=range(1,9,2)
gpus=range(1,9,0)
gpus=range(start=1,stop=3)
gpus=range(1.5,3)
gpus=interval(0,1)
gpus=interval(0)
gpus=glob(*)
gpus=glob([a*,b*],exclude=c)
policy=glob(l*)
gpus=tag(a,choice(1,2))
gpus=tag(choice(1,2))
gpus=tag(a,b,interval(0,1))
gpus=tag(a,5)
gpus=1,
gpus=,1
gpus=[1],[2]
gpus={a:1},{a:2}
gpus=(1)
gpus=a=b
gpus=a'b'
gpus='a''b'
gpus=a"b"
gpus=#x
gpus=!x
gpus=&x
gpus=ünïcödé
gpus=a;b
gpus=<x>
gpus==3
gpus:3
gpus =3
=
+
++
+++gpus=3
~
~~gpus
-gpus=3
++=3
+=3
~=3
@x=3
3=4
3.4=5
$a=3
.gpus=3
gpus.=3
tree..a=3
tree.a.=3
gpus@a@b=3
'gpus'=3
Gpus=3
+1=2
tree.0=1
required=5 & required=???
policy.new=1
gpu=3 & hydra.nonsense=1
hydra.nonsense=1 & gpu=3
policy=lro & gpu=3
gpus=1,2 & policy=lro
gpus=[ & policy=lro
hydra.searchpath=5 & gpu=2
"""


def jobs_of(block: str) -> list[list[str]]:
    """The overrides of each job, and nothing else of a block's layout."""
    return [line.split(" & ") for line in block.split("\n") if line]
