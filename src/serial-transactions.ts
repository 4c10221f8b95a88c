// Prisma sends what a caller asks at the same time at the same time, also on the one connection of a transaction. The driver has to queue
// it there, calls that deprecated and will refuse it in its next major version. So the queue is kept here.

interface Transaction {
  queryRaw(query: unknown): Promise<unknown>
  executeRaw(query: unknown): Promise<unknown>
}

interface Connected {
  startTransaction(...level: unknown[]): Promise<unknown>
}

/** Makes the transactions of an adapter factory send one statement after the other, in the order in which they were asked. */
export function withSerialTransactions<F extends object>(factory: F): F {
  const target = factory as unknown as { connect(): Promise<Connected> }
  const connect = target.connect.bind(target)
  target.connect = async () => {
    const adapter = await connect()
    const startTransaction = adapter.startTransaction.bind(adapter)
    adapter.startTransaction = async (...level) => serial((await startTransaction(...level)) as Transaction)
    return adapter
  }
  return factory
}

function serial(transaction: Transaction): Transaction {
  let last: Promise<unknown> = Promise.resolve()
  for (const name of ['queryRaw', 'executeRaw'] as const) {
    const send = transaction[name].bind(transaction)
    transaction[name] = (query) => {
      const sent = last.then(() => send(query))
      // A statement that failed does not keep the next one from learning so itself.
      last = sent.catch(() => {})
      return sent
    }
  }
  return transaction
}
