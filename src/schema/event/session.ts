import { logged, SessionEvent } from './base.ts'

logged('session.created').implement({
  interfaces: [SessionEvent],
  description: 'The session was created.',
  fields: (t) => ({
    title: t.exposeString('title', { nullable: true, description: 'Its title.' }),
    instructions: t.exposeString('instructions', {
      nullable: true,
      description: 'What the model is told before the conversation.',
    }),
    model: t.exposeString('model', { description: 'Its model, as provider/model.' }),
  }),
})

logged('session.updated').implement({
  interfaces: [SessionEvent],
  description: 'Settings of the session changed; all of them are given as they are now.',
  fields: (t) => ({
    title: t.exposeString('title', { nullable: true, description: 'Its title now.' }),
    instructions: t.exposeString('instructions', { nullable: true, description: 'Its instructions now.' }),
    model: t.exposeString('model', { description: 'Its model now.' }),
    archived: t.exposeBoolean('archived', { description: 'Whether it is archived now.' }),
  }),
})

logged('session.parked').implement({
  interfaces: [SessionEvent],
  description: 'Recovery gave up resuming the session by itself; everything that was armed is disarmed.',
  fields: (t) => ({
    reason: t.exposeString('reason', { description: 'Why.' }),
  }),
})

logged('session.resume_requested').implement({
  interfaces: [SessionEvent],
  description: 'A person asked the session to go on; what is pending is armed.',
})
