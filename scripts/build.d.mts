export declare const serverBundle: string
export declare function buildStale(): Promise<void>
export declare function buildServer(): Promise<void>
